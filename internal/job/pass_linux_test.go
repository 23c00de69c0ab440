package job

import (
	"context"
	"errors"
	"testing"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/segment"
)

// TestPassToEnded passes memory to a process that has ended: the reason is what the
// control channel says, which names the rank, and not that a pipe is broken.
func TestPassToEnded(t *testing.T) {
	var doors [2]*segment.Door
	invited := make(map[int]segment.Invitation)
	for i := range doors {
		d, err := segment.OpenDoor()
		if err != nil {
			t.Skip("no shared memory:", err)
		}
		defer d.Close()
		doors[i], invited[i] = d, d.Invitation()
	}
	nothing := segment.News{Note: func(int, []byte) {}, Gone: func(int) {}}
	far := make(chan *segment.Link)
	go func() {
		links, _ := doors[1].Meet(t.Context(), 1, map[int]segment.Invitation{0: invited[0]}, nothing)
		far <- links[0]
	}()
	links, errs := doors[0].Meet(t.Context(), 0, map[int]segment.Invitation{1: invited[1]}, nothing)
	end := <-far
	if links[1] == nil || end == nil {
		t.Fatal("they did not meet:", errs)
	}
	defer links[1].Close()
	if err := end.Close(); err != nil {
		t.Fatal(err)
	}
	lost := &engine.Failure{Kind: engine.ErrRankLost, Lost: []int{1}, Reason: "rank 1 is lost"}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(lost)
	var mapped mappings
	defer func() { _ = mapped.close() }()
	g := &group{j: &Job{links: links}}
	_, err := g.share(ctx, segment.Root, "board", []int{0, 1}, 4096, &mapped)
	if f := (*engine.Failure)(nil); !errors.As(err, &f) || f != lost {
		t.Errorf("it was told %v", err)
	}
}
