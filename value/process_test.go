package value_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/proctest"
	"github.com/tutti-go/tutti/launch"
	"github.com/tutti-go/tutti/tuttitest"
)

// bodyVariable makes the test binary a rank of TestProcesses. Its value is the way between the ranks.
const bodyVariable = "TUTTI_TEST_WAY"

// The ways between ranks.
const (
	sharedMemory = "shared memory"
	overTCP      = "TCP"
	twoHosts     = "two hosts" // shared memory inside each of them, TCP between them
)

// processBody is the body of a process: the tests that need no memory in common with other ranks.
func processBody() error {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	way := os.Getenv(bodyVariable)
	cfg := tutti.Config{NoSharedMemory: way == overTCP, Timeout: deadline}
	if way == twoHosts {
		cfg.Host = "first host"
		if os.Getenv("TUTTI_RANK") == "2" {
			cfg.Host = "second host"
		}
	}
	c, err := tutti.Join(ctx, cfg)
	if err != nil {
		return err
	}
	return errors.Join(trips(ctx, c), mistakes(ctx, c), big(ctx, c), c.Close())
}

// TestProcesses runs the tests in processes.
func TestProcesses(t *testing.T) {
	self := proctest.Self(t)
	for _, way := range []string{sharedMemory, overTCP, twoHosts} {
		t.Run(way, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			var out lockedBuffer
			report, err := launch.Run(ctx, launch.Config{
				Ranks: 3, Command: []string{self}, Env: append(os.Environ(), bodyVariable+"="+way), Stdout: &out, Stderr: &out,
			})
			if err != nil || report.Code != 0 {
				t.Fatalf("%v\n%v\n%s", err, report, out.text)
			}
		})
	}
}

// A lockedBuffer collects the output of processes.
type lockedBuffer struct {
	mu   sync.Mutex
	text []byte
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	return len(p), nil
}

// TestSimulated runs the tests on simulated ranks.
func TestSimulated(t *testing.T) {
	res := tuttitest.Run(t, tuttitest.Options{Ranks: 4, Seed: 1}, func(ctx context.Context, c *tutti.Comm) error {
		return errors.Join(trips(ctx, c), mistakes(ctx, c))
	})
	for r, err := range res.Errs {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
