package main

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/fakegpu"
	"github.com/tutti-go/tutti/internal/netns"
	"github.com/tutti-go/tutti/internal/proctest"
)

// TestMain lets the test binary be the processes of trials.
func TestMain(m *testing.M) {
	if os.Getenv(stateName) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestFaults runs a few trials of each kind. With TUTTI_TEST_HEAVY it runs a
// thousand.
func TestFaults(t *testing.T) {
	_ = proctest.Self(t)
	trials := 4
	if proctest.Heavy(t) {
		trials = 1000
	}
	for _, transport := range []string{"shm", "tcp"} {
		t.Run("kill "+transport, func(t *testing.T) {
			k, err := kill(transport, killOptions{trials: trials, seed: 1, most: 8})
			if err != nil {
				t.Fatal(err)
			}
			t.Log(k)
		})
		t.Run("kill messages "+transport, func(t *testing.T) {
			k, err := kill(transport, killOptions{trials: trials, seed: 1, messages: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Log(k)
		})
		t.Run("stop messages "+transport, func(t *testing.T) {
			if err := pauseAll(min(trials, 100), transport, 1, logger{t}); err != nil {
				t.Fatal(err)
			}
		})
		t.Run("survivors "+transport, func(t *testing.T) {
			s, err := runSurvivors(transport, survivorsOptions{trials: max(trials/4, 2), seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			t.Log(s)
		})
		t.Run("stop "+transport, func(t *testing.T) {
			if testing.Short() {
				t.Skip("it waits for deadlines")
			}
			if err := stopAll(1, transport, 2, logger{t}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestDrill runs some fast cells of the drill. A cell that cuts the network is skipped where
// network namespaces are not available.
func TestDrill(t *testing.T) {
	_ = proctest.Self(t)
	for _, c := range []struct{ transport, state, fault string }{
		{"shm", "shrink", "kill"},
		{"shm", "message", "mismatch"},
		{"tcp", "idle", "abort"},
		{"tcp", "close", "kill"},
		{"tcp", "collective", "cut"},
	} {
		t.Run(strings.Join([]string{c.transport, c.state, c.fault}, " "), func(t *testing.T) {
			if c.fault == "cut" && testing.Short() {
				t.Skip("it waits for a silent host")
			}
			// A slow rank must not count as lost, unless the test waits for that.
			o := drillOptions{shrinkTimeout: patience / 4}
			if c.fault == "cut" {
				o.hostTimeout = 3 * time.Second
			}
			text, err := o.try(c.transport, c.state, c.fault)
			if errors.Is(err, netns.ErrUnavailable) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Log(text)
		})
	}
}

// TestMismatch runs every kind of disagreement, with few elements. It does not check how soon the
// errors come. The GPU engine is skipped without a C compiler for the fake GPU.
func TestMismatch(t *testing.T) {
	_ = proctest.Self(t)
	engines := []string{"local", "hier", "nccl"}
	if testing.Short() {
		engines = engines[:1]
	}
	for _, e := range engines {
		t.Run(e, func(t *testing.T) {
			err := mismatch(mismatchOptions{engines: []string{e}, elems: []int{10}, out: logger{t}, progress: logger{t}})
			if errors.Is(err, fakegpu.ErrNoCompiler) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestMismatchEngines checks that an unknown engine is refused before the first trial.
func TestMismatchEngines(t *testing.T) {
	var out strings.Builder
	err := mismatch(mismatchOptions{engines: []string{"local", "locale"}, elems: []int{10}, out: &out, progress: &out})
	if err == nil || !strings.Contains(err.Error(), `"locale"`) || out.Len() > 0 {
		t.Errorf("%v, after %q", err, out.String())
	}
}

// TestEnd checks which ranks a timeout names: the rank that did not call, and no other number in the text.
func TestEnd(t *testing.T) {
	comms, err := tutti.Local(3, tutti.Config{Timeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var ranks sync.WaitGroup
	for _, c := range comms[:2] {
		ranks.Go(func() {
			err := c.AllReduce(t.Context(), tutti.Of(make([]float32, 8)), tutti.Sum)
			e := newEnd(0, nil, err)
			if e.Kind != "timeout" || !slices.Equal(e.Awaited, []int{2}) || !e.mentions(2) || e.mentions(20) || len(e.Lost) > 0 {
				t.Errorf("%+v", e)
			}
		})
	}
	ranks.Wait()
	for _, c := range comms {
		if err := c.Close(); (c.Rank() == 2) != errors.Is(err, tutti.ErrTimeout) { // rank 2 has made no call
			t.Errorf("rank %d: %v", c.Rank(), err)
		}
	}
}

// TestPartition drops packets in one direction between two hosts.
func TestPartition(t *testing.T) {
	_ = proctest.Self(t)
	if testing.Short() {
		t.Skip("it waits for a silent host")
	}
	err := partitionAll(partitionOptions{hostTimeout: 3 * time.Second, only: "nothing reaches the host of ranks 2 and 3", out: logger{t}})
	if errors.Is(err, netns.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestHosts loses a host of an elastic job, in both ways. With TUTTI_TEST_HEAVY it
// runs 50 trials.
func TestHosts(t *testing.T) {
	_ = proctest.Self(t)
	if testing.Short() {
		t.Skip("it waits for a silent host")
	}
	trials := 2
	if proctest.Heavy(t) {
		trials = 50
	}
	err := hostsAll(hostsOptions{trials: trials, seed: 1, out: logger{t}, log: logger{t}})
	if errors.Is(err, netns.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// logger writes to the test's log.
type logger struct{ t *testing.T }

func (l logger) Write(p []byte) (int, error) {
	l.t.Log(string(p))
	return len(p), nil
}
