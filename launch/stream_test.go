package launch

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/proctest"
)

// patientSink returns a sink that never ends a turn because of a pause.
func patientSink() *sink { return &sink{promptDelay: time.Millisecond, maxTurnIdle: time.Hour} }

// A printer is the rank's end of a stream.
type printer struct {
	*stream
	w    *os.File
	done chan struct{}
}

func newPrinter(t *testing.T, rank int, to *sink, out io.Writer) *printer {
	t.Helper()
	return newPromptPrinter(t, rank, to, out, false)
}

// newPromptPrinter returns a printer for a rank that may read the standard input. Its stream is
// copied in another goroutine, which closes done at its end.
func newPromptPrinter(t *testing.T, rank int, to *sink, out io.Writer, prompt bool) *printer {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &printer{w: write, done: make(chan struct{})}
	p.stream = &stream{
		r: read, w: out, sink: to, prefix: fmt.Sprintf("[%d] ", rank), prompt: prompt, tail: new(tail),
		logFailed: func(name string, err error) { t.Errorf("%s: %v", name, err) },
	}
	t.Cleanup(func() { write.Close() })
	go func() {
		defer close(p.done)
		p.copy()
	}()
	return p
}

func (p *printer) print(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(p.w, text); err != nil {
		t.Fatal(err)
	}
}

// end closes the output and waits until the stream has forwarded all of it.
func (p *printer) end(t *testing.T) {
	t.Helper()
	p.w.Close()
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		t.Fatal("the stream does not end")
	}
}

// waitUntil waits until ok returns true.
func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("in vain: ", what)
		}
	}
}

// TestStream forwards lines, very long ones included, and ends the last one. The tail must hold the
// panic and the last lines.
func TestStream(t *testing.T) {
	out := new(proctest.Output)
	p := newPrinter(t, 1, patientSink(), out)
	long := strings.Repeat("0123456789", maxHeldLine/4)
	for i := range 20 {
		p.print(t, fmt.Sprintf("line %d\n", i))
	}
	p.print(t, "panic: why\n\n"+long+"\n"+long+"\nend")
	p.end(t)
	var want strings.Builder
	for i := range 20 {
		fmt.Fprintf(&want, "[1] line %d\n", i)
	}
	want.WriteString("[1] panic: why\n[1] \n[1] " + long + "\n[1] " + long + "\n[1] end\n")
	if out.String() != want.String() {
		t.Errorf("%d bytes, want %d: %.600q", len(out.String()), want.Len(), out.String())
	}
	last := p.tail.last()
	if last[5] != "panic: why" || last[len(last)-1] != "end" || len(last) != tailLines || len(last[len(last)-2]) != tailWidth {
		t.Errorf("%d lines, %.50q", len(last), last)
	}
}

// TestTailOfPanic prints more lines after a panic than the tail holds. The reason comes first.
func TestTailOfPanic(t *testing.T) {
	var tail tail
	tail.add("panic: why")
	for i := range 2 * tailLines {
		tail.add(fmt.Sprint("line ", i))
	}
	if last := tail.last(); last[0] != "panic: why" || last[1] != "..." || len(last) != tailLines+2 {
		t.Errorf("%d lines: %q", len(last), last)
	}
}

// TestLongLine has another rank print while a long line arrives: its line comes after the long one.
// A goroutine prints the long line, because the pipe fills up.
func TestLongLine(t *testing.T) {
	out := new(proctest.Output)
	to := patientSink()
	p, other := newPrinter(t, 0, to, out), newPrinter(t, 1, to, out)
	piece := strings.Repeat("0123456789", 1000)
	go func() {
		for range 100 {
			_, _ = io.WriteString(p.w, piece)
		}
	}()
	waitUntil(t, "the long line begins", func() bool { return len(out.String()) > maxHeldLine+len(piece) })
	other.print(t, "short\n")
	waitUntil(t, "the short line waits", to.hasWaiters)
	waitUntil(t, "the long line comes", func() bool { return len(out.String()) == 4+100*len(piece) })
	p.print(t, "end\nnext\n")
	p.end(t)
	other.end(t)
	long := "[0] " + strings.Repeat(piece, 100) + "end\n"
	if rest, ok := strings.CutPrefix(out.String(), long); !ok || rest != "[1] short\n[0] next\n" && rest != "[0] next\n[1] short\n" {
		t.Errorf("after the long line, which was there as printed: %v: %.100q", ok, rest)
	}
}

// TestLongPrompt extends a shown prompt to a long line, which keeps the turn: another rank's line
// comes after it.
func TestLongPrompt(t *testing.T) {
	out := new(proctest.Output)
	to := patientSink()
	p, other := newPrinter(t, 0, to, out), newPrinter(t, 1, to, out)
	p.print(t, "begin ")
	out.Await(t, "[0] begin ", 1)
	piece := strings.Repeat("x", maxHeldLine)
	p.print(t, piece)
	waitUntil(t, "the line is long", func() bool { return len(out.String()) == len("[0] begin ")+len(piece) })
	other.print(t, "short\n")
	waitUntil(t, "the short line waits", to.hasWaiters)
	p.print(t, " end\n")
	p.end(t)
	other.end(t)
	if want := "[0] begin " + piece + " end\n[1] short\n"; out.String() != want {
		t.Errorf("%.20q...%q", out.String(), out.String()[maxHeldLine:])
	}
}

// TestEndlessLine has a rank print a line without end. The other rank's lines still
// arrive, and the output is otherwise unchanged.
func TestEndlessLine(t *testing.T) {
	t.Run("it pauses", func(t *testing.T) {
		out := new(proctest.Output)
		to := &sink{promptDelay: time.Millisecond, maxTurnIdle: time.Millisecond}
		p, other := newPrinter(t, 0, to, out), newPrinter(t, 1, to, out)
		p.print(t, strings.Repeat("x", maxHeldLine))
		waitUntil(t, "it is passed on", func() bool { return len(out.String()) >= maxHeldLine })
		other.print(t, "short\n")
		waitUntil(t, "the other line comes", func() bool { return strings.HasSuffix(out.String(), "\n[1] short\n") })
		p.print(t, "rest\n")
		p.end(t)
		other.end(t)
		if want := "[0] " + strings.Repeat("x", maxHeldLine) + "\n[1] short\n[0] rest\n"; out.String() != want {
			t.Errorf("%.20q...%q", out.String(), out.String()[maxHeldLine:])
		}
	})
	t.Run("it does not pause", func(t *testing.T) {
		out := new(proctest.Output)
		to := patientSink()
		p, other := newPrinter(t, 0, to, out), newPrinter(t, 1, to, out)
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			piece := bytes.Repeat([]byte("x"), maxHeldLine)
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = p.w.Write(piece)
				}
			}
		}()
		other.print(t, "short\n")
		other.end(t)
		close(stop)
		<-stopped
		p.end(t)
		if !strings.Contains(out.String(), "[1] short\n") {
			t.Error("the other line is missing")
		}
	})
}

// TestPrompt checks that an unfinished line is shown when the rank pauses, and is
// continued later.
func TestPrompt(t *testing.T) {
	out := new(proctest.Output)
	p := newPrinter(t, 0, patientSink(), out)
	p.print(t, "before\nname? ")
	out.Await(t, "[0] before\n[0] name? ", 1)
	p.print(t, "again? ")
	out.Await(t, "[0] name? again? ", 1)
	p.print(t, "x\nafter\n")
	p.end(t)
	if want := "[0] before\n[0] name? again? x\n[0] after\n"; out.String() != want {
		t.Errorf("%q", out.String())
	}
}

// TestPromptInterrupted has another rank print after a prompt was shown. A newline ends the prompt,
// and its rest gets a prefix of its own.
func TestPromptInterrupted(t *testing.T) {
	out := new(proctest.Output)
	to := patientSink()
	p, other := newPrinter(t, 0, to, out), newPrinter(t, 1, to, out)
	p.print(t, "name? ")
	out.Await(t, "[0] name? ", 1)
	other.print(t, "line\n")
	out.Await(t, "[0] name? \n[1] line\n", 1)
	p.print(t, "again? ")
	out.Await(t, "[0] again? ", 1)
	p.end(t)
	other.end(t)
	if want := "[0] name? \n[1] line\n[0] again? \n"; out.String() != want {
		t.Errorf("%q", out.String())
	}
}

// TestUnfinishedLines holds back unfinished lines of several ranks, as block-buffered
// programs print them: each line arrives in one piece. A rank that reads the standard
// input shows its line at once.
func TestUnfinishedLines(t *testing.T) {
	out := new(proctest.Output)
	to := patientSink()
	to.addUnfinished(1) // stands for a stream whose line never ends
	p, other := newPrinter(t, 0, to, out), newPrinter(t, 1, to, out)
	p.print(t, "a li")
	waitUntil(t, "the line begins", func() bool { return to.addUnfinished(0) == 2 })
	other.print(t, "another\n")
	out.Await(t, "[1] another\n", 1)
	p.print(t, "ne\n")
	out.Await(t, "[1] another\n[0] a line\n", 1)
	p.end(t)
	other.end(t)

	asks := newPromptPrinter(t, 2, to, out, true)
	asks.print(t, "name? ")
	out.Await(t, "[2] name? ", 1)
	asks.end(t)
}
