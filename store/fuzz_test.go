package store

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"
)

// FuzzDecoder decodes arbitrary bytes: no panic, no more memory than the bytes justify, and
// the budget is restored afterwards.
func FuzzDecoder(f *testing.F) {
	f.Add(hello(7))
	f.Add(appendBytes(appendBytes([]byte{byte(idSet)}, "key"), "value"))
	f.Add(appendNumber(appendBytes([]byte{byte(idAdd)}, "key"), int64(-1)))
	f.Add(appendKeys([]byte{byte(idWait)}, []string{"a", "b"}))
	f.Add(appendKeys([]byte{byte(idMultiGet)}, []string{"a", ""}))
	f.Add(append([]byte{byte(idCompareSet)}, bytes.Repeat([]byte{0}, 24)...))
	f.Add(append([]byte{byte(idMultiSet)}, bytes.Repeat([]byte{255}, 24)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		limits := Limits{KeyBytes: 64, ValueBytes: 1 << 20, Keys: 16, Bytes: 1 << 21}
		limits.fill()
		d := decoder{r: bufio.NewReader(bytes.NewReader(data)), limits: &limits, budget: new(budget)}
		d.budget.left.Store(limits.Bytes)
		for {
			first, err := d.r.ReadByte()
			if err != nil {
				break
			}
			req := request{id: id(first)}
			err = d.read(&req)
			if d.budget.left.Load() < 0 {
				t.Fatal("more was taken than there is")
			}
			d.done()
			if err != nil {
				break
			}
			for _, k := range req.keys {
				if len(k) > limits.KeyBytes {
					t.Fatalf("a key of %d bytes", len(k))
				}
			}
			for _, v := range req.values {
				if len(v) > len(data) {
					t.Fatalf("a value of %d bytes from %d", len(v), len(data))
				}
			}
		}
		if left := d.budget.left.Load(); left != limits.Bytes {
			t.Fatalf("%d bytes of the budget are missing", limits.Bytes-left)
		}
	})
}

// FuzzServer sends arbitrary bytes to a server, which answers or ends the connection. The
// server keeps no more memory than what it stores.
func FuzzServer(f *testing.F) {
	f.Add(hello(1))
	f.Add(append(hello(1), appendKeys([]byte{byte(idWait)}, []string{"a", "a", "b"})...))
	f.Add(append(hello(1), appendNumber(appendBytes([]byte{byte(idBarrier)}, "k"), int64(3))...))
	f.Add(append(hello(1), appendBytes(appendBytes([]byte{byte(idPush)}, "key"), "value")...))
	f.Fuzz(func(t *testing.T, data []byte) {
		config := Config{Plain: true, Limits: Limits{ValueBytes: 1 << 20, Keys: 64, Bytes: 1 << 21}}
		config.Limits.fill()
		s := &Server{config: config, state: newState(config.Limits), conns: make(map[*session]struct{})}
		here, there := net.Pipe()
		c := newSession(s, there)
		done := make(chan error)
		go func() {
			err := c.serve()
			c.end()
			done <- err
		}()
		go func() { _, _ = io.Copy(io.Discard, here) }()
		_, _ = here.Write(data)
		here.Close()
		<-done
		s.wg.Wait()
		want := config.Limits.Bytes
		for k, v := range s.state.values {
			want -= int64(len(k)+len(v)) + entryBytes
		}
		for k, q := range s.state.queues {
			for _, v := range q {
				want -= int64(len(k)+len(v)) + entryBytes
			}
		}
		if left := s.state.budget.left.Load(); left != want {
			t.Errorf("%d bytes are left, want %d", left, want)
		}
		if s.state.waiting != 0 || len(s.state.waiters) != 0 {
			t.Errorf("%d waiters are left", s.state.waiting)
		}
	})
}

// FuzzClient answers a client with arbitrary bytes: no panic, no hang, no more memory than the
// bytes justify.
func FuzzClient(f *testing.F) {
	f.Add([]byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 'v'})
	f.Add(bytes.Repeat([]byte{255}, 64))
	f.Add(appendNumber(nil, int64(3)))
	f.Fuzz(func(t *testing.T, data []byte) {
		limits := Limits{ValueBytes: 1 << 20, Keys: 64}
		limits.fill()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, f := range []func(c *Client) error{
			func(c *Client) error { _, err := c.Get(ctx, "k"); return err },
			func(c *Client) error { return c.Set(ctx, "k", nil) },
			func(c *Client) error { _, err := c.MultiGet(ctx, "k", "l"); return err },
			func(c *Client) error { _, err := c.List(ctx); return err },
			func(c *Client) error { _, err := c.TryPop(ctx, "k"); return err },
			func(c *Client) error { _, err := c.Check(ctx, "k"); return err },
			func(c *Client) error { return c.Barrier(ctx, "k", 2) },
			func(c *Client) error { return newClientConn(c.idle[0].raw, &limits).open(&c.config, nil) },
		} {
			here, there := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, there) }()
			go func() {
				_, _ = there.Write(data)
				there.Close()
			}()
			c := &Client{config: Config{Plain: true, Limits: limits}, idle: []*clientConn{newClientConn(here, &limits)}, busy: make(map[*clientConn]struct{})}
			_ = f(c)
			c.Close()
			there.Close()
		}
	})
}
