package torch_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/fakegpu"
	"github.com/tutti-go/tutti/nccl"
	"github.com/tutti-go/tutti/store"
	"github.com/tutti-go/tutti/torch"
)

// control controls the fake libraries; nil: the tests run on real ones.
var control *fakegpu.Control

const deadline = time.Minute

// TestMain is the process that TestPyTorch or a test of the library search starts, if its
// environment variable is set. Otherwise it runs the tests.
func TestMain(m *testing.M) {
	if os.Getenv("TUTTI_TEST_PYTORCH") != "" {
		if err := goRankProcess(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv("TUTTI_TEST_LIBRARY") != "" {
		if err := printLibrary(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(fakegpu.Main(&control, m.Run))
}

// fake returns the fake GPU's control, or skips the test, which needs several devices and a Python
// side written in Go. The test fails if it leaves anything behind.
func fake(t *testing.T) *fakegpu.Control {
	t.Helper()
	if control == nil {
		t.Skip("this test needs the fake GPU")
	}
	before := control.AllLive()
	t.Cleanup(func() {
		control.Reset()
		for end := time.Now().Add(deadline); control.Left(before); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("left behind: %v, before: %v", control.AllLive(), before)
				return
			}
		}
	})
	return control
}

// recorded returns bytes that Python wrote, from testdata.
func recorded(name string) []byte {
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		return nil
	}
	value, _ := hex.DecodeString(strings.TrimSpace(string(text)))
	return value
}

// A python is a rank as PyTorch or vLLM implements it. It is written against their protocol and
// uses no code of package torch.
type python struct {
	rank, size int
	vllm       bool
	prefix     string // begins the keys
	own        bool   // the program passes init_process_group its own store
	barrier    bool   // init_process_group ends with a barrier
	library    string // path of libnccl; "": the Go ranks' library

	server *store.Server
	client *store.Client
	dev    *cuda.Device
	stream *cuda.Stream
	comm   *nccl.Comm
}

// start performs TCPStore and init_process_group with a device_id, or StatelessProcessGroup and
// PyNcclCommunicator. With hosts it serves the store.
func (p *python) start(ctx context.Context, addr string, hosts bool) (err error) {
	plain := store.Config{Plain: true}
	if hosts {
		if p.server, err = store.Listen(ctx, addr, plain); err != nil {
			return err
		}
	}
	if p.client, err = store.Dial(ctx, addr, plain); err != nil {
		return err
	}
	if _, err = p.client.CountIn(ctx); err != nil {
		return err
	}
	for hosts {
		if n, err := p.client.Members(ctx); err != nil || n == int64(p.size) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if p.barrier {
		if err := p.initBarrier(ctx); err != nil {
			return err
		}
	}
	lib, err := nccl.Load(p.library)
	if err != nil {
		return err
	}
	id, err := p.exchange(ctx, lib)
	if err != nil {
		return err
	}
	if p.dev, err = cuda.Open(p.rank, nil); err != nil {
		return err
	}
	if p.stream, err = p.dev.NewStream(); err != nil {
		return err
	}
	if p.comm, err = lib.Init(ctx, p.dev, id, p.rank, p.size, nccl.Config{}); err != nil || !p.vllm {
		return err
	}
	return p.meet(ctx)
}

// key returns PyTorch's key of a name in the default group.
func (p *python) key(name string) string {
	if p.own {
		return p.prefix + name
	}
	return p.prefix + "default_pg/" + name
}

func (p *python) initBarrier(ctx context.Context) error {
	key := p.key("store_based_barrier_key:0")
	if _, err := p.client.Add(ctx, key, 1); err != nil {
		return err
	}
	if n, err := p.client.Add(ctx, key, 0); err != nil {
		return err
	} else if n == int64(p.size) {
		if err := p.client.Set(ctx, key+":last_worker", []byte("1")); err != nil {
			return err
		}
	}
	return p.client.Wait(ctx, key+":last_worker")
}

// exchange returns the NCCL id of the job. Rank 0 makes it and stores it, as PyTorch's bytes or as
// vLLM's pickle. The other ranks wait for it.
func (p *python) exchange(ctx context.Context, lib *nccl.Library) (id nccl.UniqueID, err error) {
	key := p.key("0//cuda//0")
	before, after := []byte(nil), []byte(nil)
	if p.vllm {
		key = "broadcast_from/0/0"
		whole := recorded("pickle4.hex")
		if len(whole) < 111+128 {
			return id, errors.New("no pickle")
		}
		before, after = whole[:111], whole[111+128:]
	}
	if p.rank == 0 {
		if id, err = lib.NewID(); err != nil {
			return id, err
		}
		return id, p.client.Set(ctx, key, append(append(before[:len(before):len(before)], id[:]...), after...))
	}
	value, err := p.client.Get(ctx, key)
	if err != nil || len(value) < 128 {
		return id, fmt.Errorf("%d bytes, %w", len(value), err)
	}
	if p.vllm {
		_, value, _ = bytes.Cut(value, []byte{'C', 128})
	}
	return nccl.UniqueID(value[:128]), nil
}

// meet performs dist.barrier, or PyNcclCommunicator's first all_reduce.
func (p *python) meet(ctx context.Context) error {
	one, err := cuda.Alloc[float32](p.dev, 1)
	if err != nil {
		return err
	}
	defer free(one)
	b := nccl.Of(one)
	return errors.Join(one.Fill(0), p.comm.AllReduce(b, b, nccl.Sum, p.stream), p.stream.Wait(ctx))
}

// close frees what start has made, even if start failed.
func (p *python) close() {
	if p.comm != nil {
		_ = p.comm.Close()
	}
	if p.stream != nil {
		_ = p.stream.Close()
	}
	if p.dev != nil {
		_ = p.dev.Close()
	}
	if p.client != nil {
		_ = p.client.Close()
	}
	if p.server != nil {
		_ = p.server.Close()
	}
}

// verbs are the operations that Go and Python ranks have in common.
type verbs struct {
	dev       *cuda.Device
	allReduce func(b nccl.Buffer) error
	broadcast func(b nccl.Buffer, root int) error
	allGather func(dst, src nccl.Buffer) error
	barrier   func() error
}

func (p *python) verbs(ctx context.Context) verbs {
	done := func(err error) error { return errors.Join(err, p.stream.Wait(ctx)) }
	return verbs{
		p.dev,
		func(b nccl.Buffer) error { return done(p.comm.AllReduce(b, b, nccl.Sum, p.stream)) },
		func(b nccl.Buffer, root int) error { return done(p.comm.Broadcast(b, b, root, p.stream)) },
		func(dst, src nccl.Buffer) error { return done(p.comm.AllGather(src, dst, p.stream)) },
		func() error { return p.meet(ctx) },
	}
}

func goVerbs(ctx context.Context, g *torch.Group) verbs {
	return verbs{
		g.Device(),
		func(b nccl.Buffer) error { return g.AllReduce(ctx, b, nccl.Sum) },
		func(b nccl.Buffer, root int) error { return g.Broadcast(ctx, b, root) },
		func(dst, src nccl.Buffer) error { return g.AllGather(ctx, dst, src) },
		func() error { return g.Barrier(ctx) },
	}
}

// program performs every operation once, and checks every element. It returns the first error or
// wrong element.
func (v verbs) program(rank, size int) error {
	const n = 1000
	x, err := cuda.Alloc[float32](v.dev, n)
	if err != nil {
		return err
	}
	defer free(x)
	all, err := cuda.Alloc[float32](v.dev, n*size)
	if err != nil {
		return err
	}
	defer free(all)
	check := func(what string, s *cuda.Slice[float32], want func(i int) float32) error {
		got := make([]float32, s.Len())
		if err := s.CopyTo(got); err != nil {
			return err
		}
		for i, f := range got {
			if f != want(i) {
				return fmt.Errorf("rank %d: element %d of %s is %v, want %v", rank, i, what, f, want(i))
			}
		}
		return nil
	}
	a, b := nccl.Of(x), nccl.Of(all)
	own := float32(rank + 1)
	if err := errors.Join(x.Fill(own), v.allReduce(a)); err != nil {
		return err
	}
	if err := check("all_reduce", x, func(int) float32 { return float32(size * (size + 1) / 2) }); err != nil {
		return err
	}
	for range 2 { // Python has two calls for it
		if err := errors.Join(x.Fill(own), v.barrier(), v.allGather(b, a)); err != nil {
			return err
		}
		if err := check("all_gather", all, func(i int) float32 { return float32(i/n + 1) }); err != nil {
			return err
		}
	}
	for _, root := range []int{1, 0} {
		if err := errors.Join(x.Fill(own), v.broadcast(a, root)); err != nil {
			return err
		}
		if err := check("broadcast", x, func(int) float32 { return float32(root + 1) }); err != nil {
			return err
		}
	}
	return v.barrier()
}

// free is for deferred calls.
func free(v interface{ Free() error }) { _ = v.Free() }
