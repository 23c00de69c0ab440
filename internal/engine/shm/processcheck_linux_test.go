package shm

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// TestProcessCheck ends the process of rank 2, as ended reports it, while the goroutines of ranks 0 and 1
// wait for it. Both fail with ErrRankLost for rank 2, or for rank 3 if the owner reports within
// exitReportTime that rank 3 was lost first.
func TestProcessCheck(t *testing.T) {
	threadPerRank(t)
	for _, c := range []struct {
		name string
		said bool // the owner soon reports that rank 3 was lost first
		left bool // rank 2 has left the group before its process ends
		lost int
	}{
		{name: "nobody says so", lost: 2},
		{name: "another was lost first", said: true, lost: 3},
		{name: "it had left", left: true, lost: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ended [4]atomic.Bool
			var looks atomic.Int32
			m := &mapped{tb: t, subs: make(map[string][]engine.Engine), ended: func(rank int) bool {
				looks.Add(1)
				return ended[rank].Load()
			}}
			engines := m.group("world", len(ended))
			errs := make([]error, 2)
			var waiting sync.WaitGroup
			begin := time.Now()
			for r := range errs {
				waiting.Go(func() {
					errs[r] = engines[r].Run(context.Background(), 1, []engine.Call{{Verb: engine.Barrier}})
				})
			}
			for looks.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
			if c.left {
				if err := engines[2].Close(); err != nil {
					t.Fatal(err)
				}
			}
			ended[2].Store(true)
			if c.said {
				engines[0].Fail(&engine.Failure{Kind: engine.ErrRankLost, Lost: []int{3}, Facts: engine.Facts{Text: "rank 3 is lost"}, Told: true})
				engines[1].Fail(&engine.Failure{Kind: engine.ErrRankLost, Lost: []int{3}, Facts: engine.Facts{Text: "rank 3 is lost"}, Told: true})
			}
			waiting.Wait()
			took := time.Since(begin)
			for r, err := range errs {
				f := (*engine.Failure)(nil)
				if !errors.As(err, &f) || !errors.Is(err, engine.ErrRankLost) || !slices.Equal(f.Lost, []int{c.lost}) || f.Left != c.left {
					t.Errorf("rank %d: %v", r, err)
				}
			}
			if !c.said && !c.left && took < exitReportTime {
				t.Errorf("the ranks waited for a report for %v", took)
			}
		})
	}
}
