package store_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti/store"
)

// A line is a line of a transcript; testdata/session.txt describes the format.
type line struct {
	number int
	who    string
	kind   byte // '!', '>' or '<'
	text   string
}

// transcript reads the lines of a transcript. An unreadable file fails the test.
func transcript(t *testing.T, file string) (lines []line) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	for i, l := range strings.Split(string(text), "\n") {
		switch {
		case l == "" || l[0] == '#':
		case l[0] == '!':
			who, rest, _ := strings.Cut(l[2:], " ")
			lines = append(lines, line{i + 1, who, '!', rest})
		default:
			lines = append(lines, line{i + 1, l[:1], l[1], l[3:]})
		}
	}
	return lines
}

// bytes returns the bytes of a line, with the nonce in its place.
func (l line) bytes(t *testing.T, nonce []byte) []byte {
	t.Helper()
	var out []byte
	for text := l.text; text != ""; text = strings.TrimPrefix(text, " ") {
		if prefix := strings.TrimPrefix(text, "s:"); prefix[0] == '"' {
			quoted, err := strconv.QuotedPrefix(prefix)
			must(t, err)
			s, err := strconv.Unquote(quoted)
			must(t, err)
			if prefix != text {
				out = binary.LittleEndian.AppendUint64(out, uint64(len(s)))
			}
			out = append(out, s...)
			text = prefix[len(quoted):]
			continue
		}
		word, rest, _ := strings.Cut(text, " ")
		text = rest
		kind, digits, typed := strings.Cut(word, ":")
		n, err := strconv.ParseInt(strings.TrimPrefix(word, kind+":"), 0, 64)
		switch {
		case word == "nonce":
			out = append(out, nonce...)
			continue
		case err != nil:
			t.Fatalf("line %d: %v", l.number, err)
		case !typed:
			out = append(out, byte(n))
		case kind == "u32":
			out = binary.LittleEndian.AppendUint32(out, uint32(n))
		case kind == "i64":
			out = binary.LittleEndian.AppendUint64(out, uint64(n))
		default:
			t.Fatalf("line %d: %s:%s", l.number, kind, digits)
		}
	}
	return out
}

func transcripts(t *testing.T, f func(t *testing.T, lines []line)) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { f(t, transcript(t, file)) })
	}
}

// TestServerTranscript plays the client's part of each transcript to a server.
func TestServerTranscript(t *testing.T) {
	transcripts(t, func(t *testing.T, lines []line) {
		s := listen(t, store.Config{Plain: true})
		conns := make(map[string]net.Conn)
		for _, l := range lines {
			conn := conns[l.who]
			if conn == nil {
				conn = raw(t, s)
				conns[l.who] = conn
			}
			want := l.sent(t)
			switch l.kind {
			case '>':
				_, err := conn.Write(want)
				must(t, err)
			case '<':
				got := make([]byte, len(want))
				if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("line %d: the server said\n%x, %v; want\n%x", l.number, got, err, want)
				}
			}
		}
	})
}

// sent returns the bytes of a line with a fixed nonce; nil for a call.
func (l line) sent(t *testing.T) []byte {
	if l.kind == '!' {
		return nil
	}
	return l.bytes(t, []byte{1, 2, 3, 4})
}

// TestClientTranscript plays the server's part of each transcript to clients, which make the
// calls of the transcript.
func TestClientTranscript(t *testing.T) {
	transcripts(t, func(t *testing.T, lines []line) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer l.Close()
		actors := make(map[string]*actor)
		for _, line := range lines {
			a := actors[line.who]
			if a == nil {
				a = &actor{t: t, addr: l.Addr().String(), done: make(chan struct{})}
				close(a.done)
				actors[line.who] = a
			}
			switch line.kind {
			case '!':
				a.begin(line)
				if a.conn == nil {
					a.conn, err = l.Accept()
					must(t, err)
					must(t, a.conn.SetDeadline(time.Now().Add(deadline)))
					defer a.conn.Close()
				}
			case '>':
				a.expect(line)
			case '<':
				_, err := a.conn.Write(line.bytes(t, a.nonce))
				must(t, err)
			}
		}
		for _, a := range actors {
			<-a.done
			must(t, a.client.Close())
		}
	})
}

// An actor is a client in a transcript, and the server's end of its connection.
type actor struct {
	t      *testing.T
	addr   string
	conn   net.Conn
	nonce  []byte
	client *store.Client
	done   chan struct{} // closed when the current call has returned

	// waiting is the context of a call that is to be cancelled. giveUp cancels it after the
	// call has sent its request.
	waiting context.Context
	giveUp  context.CancelFunc
}

// expect reads the bytes that the client must send; others fail the test. Then it cancels
// the call that is to give up.
func (a *actor) expect(l line) {
	a.t.Helper()
	want := l.bytes(a.t, []byte{0, 0, 0, 0})
	got := make([]byte, len(want))
	_, err := io.ReadFull(a.conn, got)
	must(a.t, err)
	if strings.HasSuffix(l.text, "nonce") {
		a.nonce = bytes.Clone(got[len(got)-4:])
		clear(got[len(got)-4:])
	}
	if !bytes.Equal(got, want) {
		a.t.Fatalf("line %d: the client said\n%x; want\n%x", l.number, got, want)
	}
	if a.giveUp != nil {
		a.giveUp()
		a.giveUp = nil
	}
}

// begin waits for the previous call, and makes the next one in a goroutine, which compares
// the result and closes a.done.
func (a *actor) begin(l line) {
	<-a.done
	a.done = make(chan struct{})
	if strings.HasPrefix(l.text, "giveup ") {
		a.waiting, a.giveUp = context.WithCancel(a.t.Context())
	}
	go func() {
		defer close(a.done)
		text, want, _ := strings.Cut(l.text, " = ")
		got, err := a.call(strings.Fields(text))
		if err != nil || got != want {
			a.t.Errorf("line %d: %q, %v; want %q", l.number, got, err, want)
		}
	}()
}

// call makes the call that the words describe, and returns its result as text. The goroutine
// of begin runs it.
func (a *actor) call(w []string) (got string, err error) {
	ctx, cancel := context.WithTimeout(a.t.Context(), deadline)
	defer cancel()
	c := a.client
	switch w[0] {
	case "dial":
		a.client, err = store.Dial(ctx, a.addr, store.Config{Plain: true})
		return "", err
	case "countin":
		n, err := c.CountIn(ctx)
		return fmt.Sprint(n), err
	case "set":
		return "", c.Set(ctx, w[1], []byte(w[2]))
	case "append":
		return "", c.Append(ctx, w[1], []byte(w[2]))
	case "push":
		return "", c.Push(ctx, w[1], []byte(w[2]))
	case "get":
		b, err := c.Get(ctx, w[1])
		return string(b), err
	case "cas":
		b, err := c.CompareAndSet(ctx, w[1], []byte(w[2]), []byte(w[3]))
		return string(b), err
	case "pop":
		b, err := c.Pop(ctx, w[1])
		return string(b), err
	case "trypop":
		b, err := c.TryPop(ctx, w[1])
		if errors.Is(err, store.ErrEmpty) {
			return "empty", nil
		}
		return string(b), err
	case "add":
		delta, _ := strconv.ParseInt(w[2], 10, 64)
		n, err := c.Add(ctx, w[1], delta)
		return fmt.Sprint(n), err
	case "numkeys":
		n, err := c.NumKeys(ctx)
		return fmt.Sprint(n), err
	case "queuelen":
		n, err := c.QueueLen(ctx, w[1])
		return fmt.Sprint(n), err
	case "check":
		ok, err := c.Check(ctx, w[1:]...)
		return fmt.Sprint(ok), err
	case "delete":
		ok, err := c.Delete(ctx, w[1])
		return fmt.Sprint(ok), err
	case "multiset":
		return "", c.MultiSet(ctx, store.Pair{Key: w[1], Value: []byte(w[2])}, store.Pair{Key: w[3], Value: []byte(w[4])})
	case "multiget":
		values, err := c.MultiGet(ctx, w[1:]...)
		return string(bytes.Join(values, []byte(" "))), err
	case "list":
		keys, err := c.List(ctx)
		return strings.Join(keys, " "), err
	case "barrier":
		n, _ := strconv.Atoi(w[2])
		return "", c.Barrier(ctx, w[1], n)
	case "giveup":
		if err := c.Wait(a.waiting, w[1]); !errors.Is(err, context.Canceled) {
			return "", fmt.Errorf("it did not give up: %w", err)
		}
		return "", nil
	}
	return "", fmt.Errorf("unknown call %q", w)
}
