package tutti_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/proctest"
	"github.com/tutti-go/tutti/internal/race"
)

// TestCycles makes and closes Comms ten thousand times, or makes groups of three ranks that stay, some of
// them after a failure. Each rank has a goroutine per cycle. Resource use at the end must be the same as
// after a tenth.
func TestCycles(t *testing.T) {
	cycles := 10_000
	if testing.Short() || race.Enabled {
		cycles = 1_000
	}
	for name, cycle := range map[string]func(t *testing.T, i int, c *tutti.Comm) error{
		"Local": func(t *testing.T, i int, c *tutti.Comm) error {
			if i%4 == 0 && c.Rank() == 0 {
				c.Abort(nil)
				return nil
			}
			if err := c.Barrier(t.Context()); err != nil && i%4 != 0 {
				return err
			}
			return nil
		},
		"Split": func(t *testing.T, i int, c *tutti.Comm) error {
			sub, err := c.Split(t.Context(), c.Rank()%2, 0)
			if err != nil {
				return err
			}
			defer sub.Close()
			w, err := sub.Batch().AllReduce(tutti.Of([]int{1}), tutti.Sum).Start(t.Context())
			if err != nil {
				return err
			}
			return w.Wait(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			keep := local(t, 3, tutti.Config{})
			var early usage
			// The runtime needs some cycles to reach its steady state.
			const warm = 500
			for i := range warm + cycles {
				if i == warm+cycles/10 {
					early = measure()
				}
				comms := keep
				if name == "Local" {
					var err error
					if comms, err = tutti.Local(3, tutti.Config{}); err != nil {
						t.Fatal(err)
					}
				}
				all(t, comms, func(_ context.Context, c *tutti.Comm) error {
					if name == "Local" {
						defer c.Close()
					}
					return cycle(t, i, c)
				})
			}
			late := measure()
			// Resources that are being released, also by earlier tests, may take a
			// while.
			for end := time.Now().Add(deadline / 6); late.grown(early, cycles) != "" && time.Now().Before(end); {
				late = measure()
			}
			t.Logf("at 10%%: %+v", early)
			t.Logf("at 100%%: %+v", late)
			if what := late.grown(early, cycles); what != "" {
				t.Error(what)
			}
		})
	}
}

// usage is the resources of a process.
type usage struct {
	bytes, objects              uint64
	goroutines, files, mappings int
	shared                      int // mappings of memory files
}

// grown says which resource has increased over the cycles; "": none.
func (u usage) grown(early usage, cycles int) string {
	switch {
	// The runtime's own objects vary. A leak per cycle exceeds this limit.
	case int(u.objects)-int(early.objects) > cycles/10+100:
		return fmt.Sprintf("%d more objects on the heap", u.objects-early.objects)
	case int(u.bytes)-int(early.bytes) > 64<<10:
		return fmt.Sprintf("%d more bytes on the heap", u.bytes-early.bytes)
	case u.goroutines > early.goroutines || u.files > early.files:
		return "goroutines or descriptors have grown"
	// The runtime maps memory for threads and its heap from time to time.
	case u.shared > early.shared || u.mappings > early.mappings+cycles/20:
		return "mappings have grown"
	}
	return ""
}

// measure waits until the number of goroutines no longer changes, collects garbage, and returns the resources
// that this process uses. Goroutines of other tests must not run meanwhile.
func measure() usage {
	// Goroutines that have completed may not have exited yet.
	for before := -1; before != runtime.NumGoroutine(); {
		before = runtime.NumGoroutine()
		time.Sleep(time.Millisecond)
	}
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := usage{bytes: m.HeapAlloc, objects: m.HeapObjects, goroutines: runtime.NumGoroutine(), files: proctest.OpenFiles()}
	if text, err := os.ReadFile("/proc/self/maps"); err == nil {
		u.mappings = strings.Count(string(text), "\n")
		u.shared = strings.Count(string(text), "/memfd:")
	}
	return u
}

// TestNoAllocation counts the allocations of operations of two ranks in the last third of their runs. The
// goroutine of rank 0 reads the counters, which count both ranks.
func TestNoAllocation(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	// One allocation per run would exceed what the runtime allocates meanwhile.
	const most = 100
	runs := 10 * most
	if testing.Short() {
		runs = 3 * most
	}
	for name, elems := range map[string]int{"small": 1, "large": 50_000} {
		for kind, op := range map[string]func(ctx context.Context, c *tutti.Comm) func() error{
			"blocking": func(ctx context.Context, c *tutti.Comm) func() error {
				buf := tutti.Of(make([]float32, elems))
				return func() error { return c.AllReduce(ctx, buf, tutti.Avg) }
			},
			"batch": func(ctx context.Context, c *tutti.Comm) func() error {
				b := c.Batch().AllReduce(tutti.Of(make([]float32, elems)), tutti.Sum).Barrier()
				return func() error {
					w, err := b.Start(ctx)
					if err != nil {
						return err
					}
					return w.Wait(ctx)
				}
			},
			"scan": func(ctx context.Context, c *tutti.Comm) func() error {
				dst, src := tutti.Of(make([]float32, elems)), tutti.Of(make([]float32, elems))
				return func() error {
					if err := c.Scan(ctx, dst, src, tutti.Sum); err != nil {
						return err
					}
					return c.ExScan(ctx, dst, src, tutti.PreMul(0.5))
				}
			},
			"uneven": func(ctx context.Context, c *tutti.Comm) func() error {
				dst := tutti.Of(make([]float32, 2*elems)).Parts(nil, elems, elems)
				src := tutti.Of(make([]float32, elems))
				return func() error { return c.AllGatherV(ctx, dst, src) }
			},
			"message": func(ctx context.Context, c *tutti.Comm) func() error {
				in, out := tutti.Of(make([]float32, elems)), tutti.Of(make([]float32, elems))
				return func() error { return c.SendRecv(ctx, 1-c.Rank(), out, 1-c.Rank(), in, 0) }
			},
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				comms := local(t, 2, tutti.Config{})
				var before, after runtime.MemStats
				all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
					f := op(ctx, c)
					for i := range 3 * runs {
						if i == 2*runs && c.Rank() == 0 {
							runtime.ReadMemStats(&before)
						}
						if err := f(); err != nil {
							return err
						}
					}
					if c.Rank() == 0 {
						runtime.ReadMemStats(&after)
					}
					return nil
				})
				if n := after.Mallocs - before.Mallocs; n > most {
					t.Errorf("%d allocations in %d runs of 2 ranks", n, runs)
				}
			})
		}
	}
}
