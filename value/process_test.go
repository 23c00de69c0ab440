package value_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/proctest"
	"github.com/tutti-go/tutti/launch"
	"github.com/tutti-go/tutti/tuttitest"
)

// bodyVariable makes the test binary a rank of TestProcesses. Its value switches shared memory off.
const bodyVariable = "TUTTI_TEST_NO_SHARED_MEMORY"

// processBody is the body of a process: the tests that need no memory in common with other ranks.
func processBody() error {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	without, err := strconv.ParseBool(os.Getenv(bodyVariable))
	if err != nil {
		return err
	}
	c, err := tutti.Join(ctx, tutti.Config{NoSharedMemory: without, Timeout: deadline})
	if err != nil {
		return err
	}
	return errors.Join(trips(ctx, c), mistakes(ctx, c), big(ctx, c), c.Close())
}

// TestProcesses runs the tests in processes, over shared memory and over TCP.
func TestProcesses(t *testing.T) {
	self := proctest.Self(t)
	for name, without := range map[string]string{"shared memory": "false", "TCP": "true"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			var out lockedBuffer
			report, err := launch.Run(ctx, launch.Config{
				Ranks: 3, Command: []string{self}, Env: append(os.Environ(), bodyVariable+"="+without), Stdout: &out, Stderr: &out,
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
