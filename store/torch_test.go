package store_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/store"
)

// TestTorch exchanges values with a real PyTorch process: with each of PyTorch's servers, and
// with a server of this package.
func TestTorch(t *testing.T) {
	version, err := exec.CommandContext(t.Context(), "python3", "-c", "import torch.distributed as d; from torch import __version__ as v; d.TCPStore; print(v)").Output()
	if err != nil {
		t.Skip("PyTorch is not installed here; the transcripts in testdata stand for it")
	}
	t.Logf("PyTorch %s", version)
	for _, backend := range []string{"libuv", "legacy"} {
		t.Run("PyTorch serves, "+backend, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			port := l.Addr().(*net.TCPAddr).Port
			l.Close()
			done := python(t, "serve", port, backend)
			c, err := store.Dial(within(t), fmt.Sprintf("127.0.0.1:%d", port), store.Config{Plain: true})
			must(t, err)
			defer c.Close()
			if n, err := c.CountIn(within(t)); err != nil || n < 1 {
				t.Fatal(n, err)
			}
			opposite(t, within(t), c)
			must(t, <-done)
		})
	}
	t.Run("PyTorch uses", func(t *testing.T) {
		s := listen(t, store.Config{Plain: true})
		done := python(t, "use", s.Addr().(*net.TCPAddr).Port, "libuv")
		opposite(t, within(t), dial(t, s, store.Config{Plain: true}))
		must(t, <-done)
	})
}

// python starts the PyTorch process. The channel receives its exit error.
func python(t *testing.T, role string, port int, backend string) <-chan error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "python3", "testdata/peer.py", role, "127.0.0.1", fmt.Sprint(port), backend)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	in := bufio.NewReader(out)
	done := make(chan error, 1)
	go func() {
		var all string
		for {
			line, err := in.ReadString('\n')
			if all += line; err != nil {
				break
			}
		}
		err := cmd.Wait()
		if err == nil && !strings.Contains(all, "well\n") {
			err = fmt.Errorf("it did not come to the end: %s", all)
		}
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, &errs)
		}
		done <- err
	}()
	return done
}

// opposite performs the Go side of testdata/peer.py. A difference fails the test.
func opposite(t *testing.T, ctx context.Context, c *store.Client) {
	t.Helper()
	get := func(key, want string) {
		t.Helper()
		got, err := c.Get(ctx, key)
		wants(t, got, err, want)
	}
	get("from python", "hello")
	must(t, c.Set(ctx, "from go", []byte("hello too")))
	_, err := c.Add(ctx, "both", 7)
	must(t, err)
	must(t, c.Set(ctx, "go added", nil))
	get("has queues", queues(t, ctx, c))
	get("python done", "")
	get("cas", "second")
	get("appended", "ab")
	get("m2", "22")
	got, err := store.Prefix(c, "prefix").Get(ctx, "inside")
	wants(t, got, err, "x")
	if there, err := c.Check(ctx, "m1"); err != nil || there {
		t.Error(there, err)
	}
	values, err := c.MultiGet(ctx, "cas", "m2")
	if err != nil || string(bytes.Join(values, []byte(" "))) != "second 22" {
		t.Errorf("%q, %v", values, err)
	}
	if list, err := c.Get(ctx, "has list"); err != nil {
		t.Error(err)
	} else if string(list) == "yes" {
		keys, err := c.List(ctx)
		if err != nil || !slices.Contains(keys, "cas") {
			t.Errorf("%q, %v", keys, err)
		}
	}
	must(t, c.Ping(ctx))
	must(t, c.Set(ctx, "go done", nil))
}

// queues exchanges values over queues, and returns "yes", or "no" if PyTorch does not support
// them. The goroutine that pops and pushes is cancelled when queues returns.
func queues(t *testing.T, ctx context.Context, c *store.Client) string {
	t.Helper()
	popped := make(chan bool, 1)
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		v, err := c.Pop(stop, "queue to go")
		if err == nil && string(v) == "one" {
			err = c.Push(stop, "queue to python", []byte("two"))
		}
		popped <- err == nil
	}()
	has, err := c.Get(ctx, "has queues")
	must(t, err)
	if string(has) == "no" {
		return "no"
	}
	if !<-popped {
		t.Error("the queues failed")
	}
	return "yes"
}
