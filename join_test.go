package tutti_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/proctest"
)

// TestMain runs the tests, or one rank's body if TUTTI_TEST_RANK is set, because tests start this binary as a
// rank. A body that fails is printed and makes the process exit with 1.
func TestMain(m *testing.M) {
	if os.Getenv("TUTTI_TEST_RANK") == "" {
		if proctest.Emulated() { // an emulated binary cannot start itself, and an Example cannot skip
			if err := flag.Set("test.skip", "^Example_lostProcess$"); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		os.Exit(m.Run())
	}
	body := rankProcess
	switch os.Getenv("TUTTI_TEST_BODY") {
	case "family":
		body = processJobBody
	case "word":
		body = markerBody
	case "stay":
		body = idleBody
	case "launch":
		body = launchBody
	case "attack":
		body = attackBody
	case "tunnel":
		body = tunnelBody
	case "messages":
		body = messagesBody
	case "lost":
		body = lostProcess
	}
	for range max(envNumber("TUTTI_TEST_TIMES"), 1) {
		if err := body(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// marker is what ranks send each other in tests that capture their traffic.
const marker = "what only the ranks of this job are to know"

// markerBody joins, and sends the marker.
func markerBody() error {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	c, err := tutti.Join(ctx, tutti.Config{
		Rank: envNumber("TUTTI_TEST_RANK"), Size: envNumber("TUTTI_TEST_SIZE"), Addr: os.Getenv("TUTTI_TEST_ADDR"),
	})
	if err != nil {
		return err
	}
	x := []byte(strings.Repeat(marker, 100))
	return errors.Join(c.AllReduce(ctx, tutti.Of(x), tutti.Max), c.Close())
}

// rankProcess is the body of one rank: it joins, computes, makes groups, sends, and leaves. The first error
// ends it, and the process with exit code 1. Environment variables of the test select the rank and the
// transport.
func rankProcess() error {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	cfg := tutti.Config{
		Rank: envNumber("TUTTI_TEST_RANK"), Size: envNumber("TUTTI_TEST_SIZE"), Addr: os.Getenv("TUTTI_TEST_ADDR"),
		NoSharedMemory: os.Getenv("TUTTI_TEST_NETWORK") != "",
		Cert:           []byte(os.Getenv("TUTTI_TEST_CERT")), Key: []byte(os.Getenv("TUTTI_TEST_KEY")),
	}
	if len(cfg.Cert) == 0 {
		cfg.Cert, cfg.Key = nil, nil
	}
	if cfg.Rank < 0 { // the environment determines the rank
		cfg.Rank = 0
	}
	joining := ctx
	if limit, _ := time.ParseDuration(os.Getenv("TUTTI_TEST_TIMEOUT")); limit > 0 {
		joining, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	c, err := tutti.Join(joining, cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	defer c.Close() // a second Close has no effect
	if cfg.Size != 0 && (c.Rank() != cfg.Rank || c.Size() != cfg.Size) {
		return fmt.Errorf("rank %d of %d", c.Rank(), c.Size())
	}
	for _, n := range []int{1, 3000, 400_000} {
		x := make([]float64, n)
		for i := range x {
			x[i] = float64(i + c.Rank())
		}
		w, err := c.Batch().AllReduce(tutti.Of(x), tutti.Sum).Barrier().Start(ctx)
		if err != nil {
			return err
		}
		if err := w.Wait(ctx); err != nil {
			return err
		}
		if want := float64(c.Size()*(n-1) + c.Size()*(c.Size()-1)/2); x[n-1] != want {
			return fmt.Errorf("%d elements: %v, want %v", n, x[n-1], want)
		}
	}
	sub, err := c.Split(ctx, c.Rank()%2, 0)
	if err != nil {
		return err
	}
	defer sub.Close()
	defer sub.Close() // a second Close has no effect
	all, err := tutti.AllGatherSlices(ctx, sub, make([]byte, c.Rank()))
	if err != nil {
		return err
	}
	for i, s := range all {
		if len(s) != 2*i+c.Rank()%2 {
			return fmt.Errorf("%d bytes of rank %d of the group", len(s), i)
		}
	}
	m, err := tutti.Alloc[int32](ctx, c, 100_000)
	if err != nil {
		return err
	}
	defer func() { _ = m.Free() }()
	for i := range m.Slice() {
		m.Slice()[i] = int32(c.Rank())
	}
	if err := c.AllReduce(ctx, m.Buffer(), tutti.Max); err != nil || m.Slice()[99_999] != int32(c.Size()-1) {
		return fmt.Errorf("%d, %w", m.Slice()[99_999], err)
	}
	in, out := make([]int, 1), []int{c.Rank()}
	next, prev := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	if err := c.SendRecv(ctx, next, tutti.Of(out), prev, tutti.Of(in), 1); err != nil || in[0] != prev {
		return fmt.Errorf("%d instead of %d, %w", in[0], prev, err)
	}
	host, err := c.SplitHost(ctx)
	if err != nil {
		return err
	}
	defer host.Close()
	want := c.Size()
	if cfg.NoSharedMemory {
		want = 1
	}
	if host.Size() != want {
		return fmt.Errorf("%d ranks share a host, want %d", host.Size(), want)
	}
	return nil
}

func envNumber(name string) int {
	n, _ := strconv.Atoi(os.Getenv(name))
	return n
}

// TestJoin runs rankProcess on 2 and 5 processes, over shared memory, over the network and over TLS.
func TestJoin(t *testing.T) {
	cert, key, err := tutti.NewJobCert(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name, env := range map[string][]string{
		"shared memory": nil,
		"network":       {"TUTTI_TEST_NETWORK=1"},
		"encrypted":     {"TUTTI_TEST_NETWORK=1", "TUTTI_TEST_CERT=" + string(cert), "TUTTI_TEST_KEY=" + string(key)},
	} {
		for _, n := range []int{2, 5} {
			t.Run(fmt.Sprintf("%s/ranks=%d", name, n), func(t *testing.T) {
				startRanks(t, n, env)
			})
		}
	}
}

// startRanks starts n processes of this binary with env and waits for all. It reports each that fails, with
// its output. All processes run until they exit on their own or the test's context ends.
func startRanks(t *testing.T, n int, env []string) {
	addr := proctest.FreeAddr(t)
	var cmds []*exec.Cmd
	var outs []*strings.Builder
	for r := range n {
		cmd := exec.CommandContext(t.Context(), proctest.Self(t))
		cmd.Env = append(os.Environ(), append(env, "TUTTI_TEST_ADDR="+addr,
			fmt.Sprint("TUTTI_TEST_RANK=", r), fmt.Sprint("TUTTI_TEST_SIZE=", n))...)
		out := new(strings.Builder)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds, outs = append(cmds, cmd), append(outs, out)
	}
	for r, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Errorf("rank %d: %v\n%s", r, err, outs[r])
		}
	}
}

// TestJoinErrors checks that Join refuses wrong Configs, and that rank 0 and rank 1 time out alone, each with
// an *Error that says why. A Join without any option makes a group of one rank.
func TestJoinErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for says, cfg := range map[string]tutti.Config{
		"numbered from 0 to 2": {Rank: 3, Size: 3, Addr: "127.0.0.1:1"},
		"no address":           {Rank: 1, Size: 3},
		"not host:port":        {Rank: 1, Size: 3, Addr: "here"},
		"192.0.2.1:5 is not on the loopback, and there is no secret; openssl rand -hex 32 makes one":         {Rank: 1, Size: 3, Addr: "192.0.2.1:5"},
		"192.0.2.1:5 is not on the loopback, and the secret has 15 bytes, and must have 16 or more, at rand": {Rank: 1, Size: 3, Addr: "192.0.2.1:5", Secret: "123456789012345"},
		"-2 ranks":               {Size: -2},
		"without a key":          {Rank: 1, Size: 3, Addr: "127.0.0.1:1", Cert: []byte{1}},
		"cannot be used":         {Rank: 1, Size: 3, Addr: "127.0.0.1:1", Cert: []byte{1}, Key: []byte{1}},
		"rank 0 cannot listen":   {Rank: 0, Size: 2, Addr: "127.0.0.1:99999"},
		"give all ranks another": {Rank: 0, Size: 2, Addr: taken.Addr().String()},
	} {
		_, err := tutti.Join(t.Context(), cfg)
		var e *tutti.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	// The context bounds Join, not the Timeout of operations.
	for says, rank := range map[string]int{"rank 0 cannot be reached": 1, "1 of 2 ranks joined; rank 1 missing": 0} {
		const limit = 50 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		began := time.Now()
		_, err := tutti.Join(ctx, tutti.Config{Rank: rank, Size: 2, Addr: proctest.FreeAddr(t), Timeout: 1})
		cancel()
		if !errors.Is(err, tutti.ErrTimeout) || !strings.Contains(err.Error(), says) || time.Since(began) < limit {
			t.Errorf("after %v: %v, want %q", time.Since(began), err, says)
		}
	}
	c, err := tutti.Join(t.Context(), tutti.Config{})
	if err != nil || c.Size() != 1 {
		t.Fatal(c, err)
	}
	if err := errors.Join(c.Barrier(t.Context()), c.Close()); err != nil {
		t.Error(err)
	}
}

// TestJoinOptionsDiffer has rank 2 join with another option than ranks 0 and 1, each in a goroutine. Join
// itself reports the difference on all ranks with ErrMismatch.
func TestJoinOptionsDiffer(t *testing.T) {
	errs := make([]error, 3)
	errs[0] = syscall.EADDRINUSE
	for errors.Is(errs[0], syscall.EADDRINUSE) { // another process may have taken the free port
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		addr := proctest.FreeAddr(t)
		var ranks sync.WaitGroup
		for r := range errs {
			ranks.Go(func() {
				_, errs[r] = tutti.Join(ctx, tutti.Config{Rank: r, Size: len(errs), Addr: addr, Verify: r == 2})
				if errors.Is(errs[r], syscall.EADDRINUSE) {
					cancel()
				}
			})
		}
		ranks.Wait()
	}
	for r, err := range errs {
		if !errors.Is(err, tutti.ErrMismatch) || !strings.Contains(err.Error(), "Config.Verify is not set on rank 0, and set on rank 2") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestJoinEncrypts has two ranks, each in a goroutine, join over addresses that are not on the loopback, with
// only a secret. They encrypt, unless the Config says otherwise. If their settings differ, Join fails on both
// ranks; rank 1 cancels rank 0 only after rank 0 has logged the refusal.
func TestJoinEncrypts(t *testing.T) {
	for _, plain := range [][2]bool{{false, false}, {true, true}, {true, false}, {false, true}} {
		errs := [2]error{syscall.EADDRINUSE}
		for errors.Is(errs[0], syscall.EADDRINUSE) { // another process may have taken the free port
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			_, port, _ := net.SplitHostPort(proctest.FreeAddr(t))
			var ranks sync.WaitGroup
			var logs [2]proctest.Output
			for r := range errs {
				cfg := tutti.Config{
					Rank: r, Size: 2, Addr: "0.0.0.0:" + port, Secret: "a secret of this job", NoEncryption: plain[r], NoSharedMemory: true,
					Logger: slog.New(slog.NewTextHandler(&logs[r], nil)),
				}
				ranks.Go(func() {
					c, err := tutti.Join(ctx, cfg)
					if err == nil {
						x := []float32{float32(r)}
						err = errors.Join(c.AllReduce(ctx, tutti.Of(x), tutti.Sum), c.Close())
					}
					if errs[r] = err; err == nil {
						return
					}
					for r == 1 && plain[0] != plain[1] && len(logs[0].Lines()) == 0 && ctx.Err() == nil {
						time.Sleep(time.Millisecond) // until rank 0 knows the reason too
					}
					cancel()
				})
			}
			ranks.Wait()
			cancel()
		}
		if plain[0] == plain[1] {
			if err := errors.Join(errs[:]...); err != nil {
				t.Errorf("plain %v: %v", plain, err)
			}
			continue
		}
		does := "rank 0 at 0.0.0.0:"
		if plain[0] {
			does = "rank 1 encrypts"
		}
		if !errors.Is(errs[1], tutti.ErrMismatch) || !strings.Contains(errs[1].Error(), does) || !strings.Contains(errs[1].Error(), "TUTTI_NO_ENCRYPTION") {
			t.Errorf("plain %v: rank 1: %v", plain, errs[1])
		}
		if errs[0] == nil || !strings.Contains(errs[0].Error(), "was refused: it ") || !strings.Contains(errs[0].Error(), "TUTTI_NO_ENCRYPTION") {
			t.Errorf("plain %v: rank 0: %v", plain, errs[0])
		}
	}
}
