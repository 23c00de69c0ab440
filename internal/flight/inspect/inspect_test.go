package inspect_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/flight/inspect"
)

const deadline = time.Minute

// hang runs one body per rank until all bodies that can hang do, and returns the
// ranks' dumps. The bodies begin one after the other, so that each has begun before
// it gets another rank's failure. A rank with a nil body leaves no dump. At the end Abort
// makes the bodies return; other errors of theirs fail the test.
func hang(t *testing.T, bodies ...func(ctx context.Context, c *tutti.Comm) error) string {
	t.Helper()
	comms, err := tutti.Local(len(bodies), tutti.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	var warm, ranks sync.WaitGroup
	for _, c := range comms {
		warm.Go(func() {
			for range 5 {
				if err := c.AllReduce(ctx, tutti.Of(make([]float32, 10)), tutti.Sum); err != nil {
					t.Error(err)
				}
			}
		})
	}
	warm.Wait()
	dir := t.TempDir()
	write := func(r int) string {
		var b bytes.Buffer
		if err := comms[r].Dump(&b); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("rank%d.json", r)), b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for r, body := range bodies {
		if body == nil {
			continue
		}
		ranks.Go(func() {
			if err := body(ctx, comms[r]); err != nil && !errors.Is(err, tutti.ErrRevoked) && !errors.Is(err, tutti.ErrMismatch) {
				t.Errorf("rank %d: %v", r, err)
			}
		})
		// The rank's dump shows that it waits or has failed.
		for end := time.Now().Add(deadline); ; time.Sleep(time.Millisecond) {
			text := write(r)
			if strings.Contains(text, `"state":"running","start"`) || strings.Contains(text, `"error":`) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("rank %d does not hang: %s", r, text)
			}
		}
	}
	// All ranks have reached their final state. Dump once more, so that all dumps
	// show it.
	for r, body := range bodies {
		if body != nil {
			write(r)
		}
	}
	comms[0].Abort(nil)
	ranks.Wait()
	for _, c := range comms {
		c.Close()
	}
	return dir
}

func reduce(ctx context.Context, c *tutti.Comm) error {
	return c.AllReduce(ctx, tutti.Of(make([]float32, 10)), tutti.Sum)
}

func receive(ctx context.Context, c *tutti.Comm) error {
	_, err := c.Recv(ctx, 0, tutti.Of(make([]float32, 4)), 7)
	return err
}

func broadcast(ctx context.Context, c *tutti.Comm) error {
	return c.Broadcast(ctx, tutti.Of(make([]int32, 3)), 1)
}

var (
	times     = regexp.MustCompile(`(\d+(\.\d+)?(ns|µs|ms|m|s))+`)
	processes = regexp.MustCompile(`process \d+ on [^)]*`)
)

// TestDiagnosis checks that the first lines of a report name the problem.
func TestDiagnosis(t *testing.T) {
	for _, c := range []struct {
		name   string
		bodies []func(ctx context.Context, c *tutti.Comm) error
		want   []string
	}{
		{"one in another verb, one absent", []func(context.Context, *tutti.Comm) error{reduce, reduce, receive, nil}, []string{
			"Rank 3 is missing: there is no dump of it.",
			"Rank 2 is behind: it last did AllReduce#5, TIME before its dump, and waits in Recv from rank 0, tag 7 (for TIME); ranks 0 and 1 are in AllReduce#6 (for TIME).",
			"Rank 2 waits in Recv from rank 0, tag 7 (for TIME), and rank 0 has not sent it.",
		}},
		{"one absent", []func(context.Context, *tutti.Comm) error{reduce, nil, reduce}, []string{
			"Rank 1 is missing: there is no dump of it.",
			"  rank 0 (process N) is in AllReduce#6 (for TIME)",
			"  rank 2 (process N) is in AllReduce#6 (for TIME)",
		}},
		{"mismatch", []func(context.Context, *tutti.Comm) error{reduce, reduce, broadcast}, []string{
			"Rank 2 disagrees in operation #6: rank 2 called Broadcast(3 x int32, root 1), ranks 0 and 1 called AllReduce(10 x float32, sum).",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dumps, err := inspect.Read([]string{hang(t, c.bodies...)})
			if err != nil {
				t.Fatal(err)
			}
			comms := inspect.Comms(dumps)
			var text bytes.Buffer
			if err := inspect.Text(&text, comms); err != nil {
				t.Fatal(err)
			}
			plain := processes.ReplaceAllString(times.ReplaceAllString(text.String(), "TIME"), "process N")
			// It depends on timing whether a wait is long enough to be recorded.
			plain = strings.Replace(plain, "AllReduce#5, and waits", "AllReduce#5, TIME before its dump, and waits", 1)
			lines := strings.Split(plain, "\n")
			for i, want := range c.want {
				if i >= len(lines) || lines[i] != want {
					t.Errorf("line %d is not %q in:\n%s", i+1, want, text.String())
				}
			}
			checkOutputs(t, comms, c.want[0])
		})
	}
}

// checkOutputs checks the page and the trace.
func checkOutputs(t *testing.T, comms []*inspect.Comm, first string) {
	t.Helper()
	var page, trace bytes.Buffer
	if err := errors.Join(inspect.Page(&page, comms), inspect.Trace(&trace, comms)); err != nil {
		t.Fatal(err)
	}
	if text := page.String(); !strings.Contains(text, first) || strings.Contains(text, "http") || strings.Contains(text, "ZgotmplZ") ||
		!strings.Contains(text, `class="running`) && !strings.Contains(text, `class="failed`) || strings.Count(text, "<svg") != 2 {
		t.Errorf("the page does not show it:\n%s", text)
	}
	var events struct {
		TraceEvents []struct {
			Name, Ph string
			Ts, Dur  float64
			Args     map[string]any
		}
	}
	if err := json.Unmarshal(trace.Bytes(), &events); err != nil {
		t.Fatal(err)
	}
	open := 0
	for _, e := range events.TraceEvents {
		if e.Ph == "X" && e.Args["state"] != "done" && e.Ts > 0 {
			open++
		}
	}
	if open == 0 {
		t.Errorf("nothing in the trace is open: %s", &trace)
	}
	if dir := os.Getenv("TUTTI_TEST_KEEP"); dir != "" {
		name := strings.ReplaceAll(t.Name(), "/", "-")
		if err := os.WriteFile(filepath.Join(dir, name+".html"), page.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRead checks that invalid files are refused, and that the newer of two dumps
// is used.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for name, text := range map[string]string{
		"words": "hello", "other": `{"a":1}`, "new": `{"tutti_flight":99,"size":1}`, "rank": `{"tutti_flight":1,"rank":2,"size":2}`, "empty": "",
	} {
		if _, err := inspect.Read([]string{file(name, text)}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	const dump = `{"tutti_flight":1,"comm":"world","rank":0,"size":1,"began":"2026-01-02T03:04:05Z","at":1,"ops":[]}`
	two := file("two", dump+strings.Replace(dump, `"at":1`, `"at":2`, 1))
	dumps, err := inspect.Read([]string{two})
	if err != nil || len(dumps) != 2 {
		t.Fatal(dumps, err)
	}
	if c := inspect.Comms(dumps); len(c) != 1 || c[0].Ranks[0].At != 2 {
		t.Errorf("%+v", c[0].Ranks[0])
	}
	if f := inspect.Comms(dumps)[0].Diagnose().Findings; len(f) != 1 || !strings.HasPrefix(f[0].Text, "Nobody is behind") {
		t.Errorf("%+v", f)
	}
}
