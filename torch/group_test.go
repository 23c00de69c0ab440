package torch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/fakegpu"
	"github.com/tutti-go/tutti/internal/proctest"
	"github.com/tutti-go/tutti/nccl"
	"github.com/tutti-go/tutti/store"
	"github.com/tutti-go/tutti/torch"
)

// A job has four ranks. Some are Go ranks of package torch; the others follow PyTorch's protocol
// as Python ranks do.
type job struct {
	golang  [4]bool
	vllm    bool
	agent   string // address of torchrun's agent store; "": rank 0 serves the store
	prefix  string
	own     bool
	barrier bool
}

// run runs each rank in a goroutine, and returns the errors of all. An error of one rank cancels
// the others.
func (j job) run(t *testing.T) error {
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	addr := j.agent
	if addr == "" {
		addr = proctest.FreeAddr(t)
	}
	errs := make(chan error, len(j.golang))
	// All ranks wait for the last one, because rank 0 may serve the store.
	through := make(chan struct{}, len(j.golang))
	over := make(chan struct{})
	for rank, isGo := range j.golang {
		go func() {
			err := func() error {
				if isGo {
					return j.goRank(ctx, addr, rank, through, over)
				}
				return j.pythonRank(ctx, addr, rank, through, over)
			}()
			if err != nil {
				cancel()
				err = fmt.Errorf("rank %d: %w", rank, err)
			}
			errs <- err
		}()
	}
	go func() {
		defer close(over)
		for range j.golang {
			select {
			case <-through:
			case <-ctx.Done():
				return
			}
		}
	}()
	var all []error
	for range j.golang {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// goRank runs a Go rank in the calling goroutine. When its program is complete, it sends to
// through, and keeps the group until over is closed: all ranks are complete, or one has failed.
func (j job) goRank(ctx context.Context, addr string, rank int, through chan<- struct{}, over <-chan struct{}) error {
	dev, err := cuda.Open(rank, nil)
	if err != nil {
		return err
	}
	defer dev.Close()
	cfg := torch.Config{Rank: rank, Size: 4, Addr: addr, Device: dev}
	if j.agent != "" {
		cfg.Addr = "" // the environment has the address
	}
	join := torch.Join
	if j.vllm {
		join = torch.JoinVLLM
	}
	g, err := join(ctx, cfg)
	if err != nil {
		return err
	}
	if err := goVerbs(ctx, g).program(rank, 4); err != nil {
		return errors.Join(err, g.Close())
	}
	through <- struct{}{}
	<-over
	return errors.Join(g.Close(), g.Close())
}

func (j job) pythonRank(ctx context.Context, addr string, rank int, through chan<- struct{}, over <-chan struct{}) error {
	p := &python{rank: rank, size: 4, vllm: j.vllm, prefix: j.prefix, own: j.own, barrier: j.barrier}
	defer p.close()
	if err := p.start(ctx, addr, rank == 0 && j.agent == ""); err != nil {
		return err
	}
	if err := p.verbs(ctx).program(rank, 4); err != nil {
		return err
	}
	through <- struct{}{}
	<-over
	return nil
}

// TestGroup mixes Go and Python ranks in every kind of group.
func TestGroup(t *testing.T) {
	mixed, led := [4]bool{false, true, false, true}, [4]bool{true, false, true, false}
	for name, j := range map[string]job{
		"Python leads":       {golang: mixed},
		"Go leads":           {golang: led},
		"with the barrier":   {golang: mixed, barrier: true},
		"a store given":      {golang: mixed, own: true, barrier: true},
		"Go leads, given":    {golang: led, own: true},
		"Go only":            {golang: [4]bool{true, true, true, true}},
		"vLLM, Python leads": {golang: mixed, vllm: true},
		"vLLM, Go leads":     {golang: led, vllm: true},
	} {
		t.Run(name, func(t *testing.T) {
			fake(t)
			if err := j.run(t); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAgent is TestGroup under torchrun, whose agent serves the store. PyTorch versions differ in
// the keys.
func TestAgent(t *testing.T) {
	for _, prefix := range []string{"", "/worker/attempt_2/"} {
		for name, golang := range map[string][4]bool{"Python leads": {false, true, false, true}, "Go leads": {true, false, true, false}} {
			t.Run(name+" "+prefix, func(t *testing.T) {
				fake(t)
				s, err := store.Listen(t.Context(), "127.0.0.1:0", store.Config{Plain: true})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				host, port, _ := strings.Cut(s.Addr().String(), ":")
				for k, v := range map[string]string{
					"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": host, "MASTER_PORT": port,
					"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "2",
				} {
					t.Setenv(k, v)
				}
				j := job{golang: golang, agent: s.Addr().String(), prefix: prefix, barrier: true}
				if err := j.run(t); err != nil {
					t.Error(err)
				}
				if n := s.Store().Members(); n != 4 {
					t.Errorf("%d processes have counted themselves in", n)
				}
			})
		}
	}
}

// pair returns a Go rank and a Python rank that have made their communicator and nothing more. It
// lengthens a short timeout if the machine is too slow for it.
func pair(t *testing.T, cfg torch.Config) (*torch.Group, *python) {
	t.Helper()
	for {
		g, p, err := tryPair(t, cfg)
		switch {
		case err == nil:
			return g, p
		case cfg.Timeout <= 0 || cfg.Timeout > deadline || !errors.Is(err, tutti.ErrTimeout):
			t.Fatal(err)
		}
		cfg.Timeout *= 4
	}
}

// tryPair makes one attempt of pair. If the Go rank fails, the Python rank is ended too, and its
// error is dropped.
func tryPair(t *testing.T, cfg torch.Config) (*torch.Group, *python, error) {
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	cfg.Rank, cfg.Size, cfg.Addr = 1, 2, proctest.FreeAddr(t)
	t.Setenv("LOCAL_RANK", "1")
	p := &python{rank: 0, size: 2}
	t.Cleanup(p.close)
	started := make(chan error, 1)
	go func() { started <- p.start(ctx, cfg.Addr, true) }()
	g, err := torch.Join(ctx, cfg)
	if err == nil {
		t.Cleanup(func() { _ = g.Close() })
		err = g.Connect(ctx)
	}
	if err != nil {
		cancel() // the other rank waits
		<-started
		return nil, nil, err
	}
	return g, p, <-started
}

// TestGiveUp cancels a call that the other rank never makes.
func TestGiveUp(t *testing.T) {
	for name, c := range map[string]struct {
		timeout time.Duration
		cancel  bool
		kind    error
	}{
		"cancelled": {0, true, tutti.ErrAborted},
		"timeout":   {500 * time.Millisecond, false, tutti.ErrTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			lib := fake(t)
			g, _ := pair(t, torch.Config{Timeout: c.timeout})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.cancel {
				calls := lib.Calls("ncclAllReduce")
				go func() { // cancels after the call has begun
					for lib.Calls("ncclAllReduce") == calls {
						time.Sleep(time.Millisecond)
					}
					cancel()
				}()
			}
			err := g.Barrier(ctx)
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), "Barrier on rank 1") {
				t.Errorf("%v, want %v", err, c.kind)
			}
			if c.cancel != errors.Is(err, context.Canceled) {
				t.Errorf("%v: is the context's", err)
			}
			if again := g.Barrier(t.Context()); !errors.Is(again, err) || !errors.Is(g.Err(), err) {
				t.Errorf("the first cause is lost: %v", again)
			}
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDeviceFails makes the collective itself fail on the device.
func TestDeviceFails(t *testing.T) {
	c := fake(t)
	g, _ := pair(t, torch.Config{})
	fired := c.Fired()
	c.Fail(fakegpu.Kernel, 1, 6)
	err := g.Barrier(t.Context())
	if c.Fired() != fired+1 {
		t.Fatal("the fault did not happen")
	}
	if !errors.Is(err, tutti.ErrRankLost) && !errors.Is(err, tutti.ErrAborted) {
		t.Error(err)
	}
	if again := g.Barrier(t.Context()); !errors.Is(again, err) {
		t.Errorf("%v after %v", again, err)
	}
}

// TestRefused makes invalid calls. Each returns ErrInvalid at once, and the group stays usable.
func TestRefused(t *testing.T) {
	fake(t)
	g, p := pair(t, torch.Config{})
	x, err := cuda.Alloc[float32](g.Device(), 10)
	if err != nil {
		t.Fatal(err)
	}
	defer free(x)
	gone, err := cuda.Alloc[float32](g.Device(), 10)
	if err != nil {
		t.Fatal(err)
	}
	free(gone)
	for name, err := range map[string]error{
		"root":  g.Broadcast(t.Context(), nccl.Of(x), 2),
		"parts": g.AllGather(t.Context(), nccl.Of(x), nccl.Of(x)),
		"freed": g.AllReduce(t.Context(), nccl.Of(gone), nccl.Sum),
		"none":  g.AllReduce(nil, nccl.Of(x), nccl.Sum), //nolint:staticcheck // that is the test
	} {
		if !errors.Is(err, tutti.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	met := make(chan error, 1)
	go func() { met <- p.meet(t.Context()) }()
	if err := errors.Join(g.Barrier(t.Context()), <-met, g.Close()); err != nil {
		t.Error(err)
	}
	if err := g.Barrier(t.Context()); !errors.Is(err, tutti.ErrClosed) {
		t.Error(err)
	}
}

// TestNoID joins a job whose rank 0 stores no id, or something else.
func TestNoID(t *testing.T) {
	for says, fill := range map[string]func(ctx context.Context, s store.Store) error{
		"1 of 2 processes have come to the store": func(context.Context, store.Store) error { return nil },
		"Python ranks wait in Gloo": func(ctx context.Context, s store.Store) error {
			return s.Set(ctx, "default_pg/0//cpu//0/rank_0", nil)
		},
		"3 bytes are not an NCCL id": func(ctx context.Context, s store.Store) error {
			return s.Set(ctx, "default_pg/0//cuda//0", []byte("xyz"))
		},
	} {
		fake(t)
		// A busy machine may need the longer timeout to reach this point.
		var err error
		for _, timeout := range []time.Duration{300 * time.Millisecond, 3 * time.Second, 30 * time.Second} {
			if err = withoutID(t, fill, timeout); err != nil && strings.Contains(err.Error(), says) {
				break
			}
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
}

// withoutID returns the error of a rank's first call if the store has only what fill stores.
func withoutID(t *testing.T, fill func(ctx context.Context, s store.Store) error, timeout time.Duration) error {
	t.Helper()
	s, err := store.Listen(t.Context(), "127.0.0.1:0", store.Config{Plain: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := fill(t.Context(), s.Store()); err != nil {
		t.Fatal(err)
	}
	g, err := torch.Join(t.Context(), torch.Config{Rank: 1, Size: 2, Addr: s.Addr().String(), Timeout: timeout})
	if err != nil {
		return err
	}
	err = g.Barrier(t.Context())
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	return err
}

// TestConfig checks the error of Join for each mistake in a Config.
func TestConfig(t *testing.T) {
	fake(t)
	for says, cfg := range map[string]torch.Config{
		"rank 2 of 2 ranks":              {Rank: 2, Size: 2, Addr: "127.0.0.1:1"},
		"not host:port":                  {Rank: 1, Size: 2, Addr: "here"},
		"the address of the job's store": {Rank: 1, Size: 2},
		"the number of ranks":            {},
		"not supported: 200 rank":        {Rank: 1, Size: 200, Addr: "127.0.0.1:1"},
		"not reached in time":            {Rank: 1, Size: 2, Addr: "127.0.0.1:1", Timeout: 50 * time.Millisecond},
		"/no/such/library":               {Rank: 1, Size: 2, Addr: "127.0.0.1:1", Library: "/no/such/library"},
	} {
		_, err := torch.Join(t.Context(), cfg)
		var e *tutti.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
}
