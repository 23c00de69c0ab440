package nccl

import (
	"context"
	"math"
	"slices"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/ncclsys"
)

// NoColor is the color of a rank that is to be in none of the communicators that
// Split makes.
const NoColor = -1

// Split makes a communicator of the ranks that give the same color, ordered by
// their keys, then by their ranks here. All ranks must call it. A rank with
// NoColor gets nil and no error. The caller closes the new communicator, this one
// stays as it is. It needs NCCL 2.18.
func (c *Comm) Split(ctx context.Context, color, key int, cfg Config) (*Comm, error) {
	if color < NoColor || int(int32(color)) != color || int(int32(key)) != key {
		return nil, invalid("color %d, key %d", color, key)
	}
	return c.child(ctx, "Split", color == NoColor, cfg, func(out *ncclsys.Slot, raw *ncclsys.Config) error {
		return c.lib.sys.CommSplit(c.handle(), color, key, out, raw)
	})
}

// Shrink makes a communicator without some ranks, which do not call it; all
// others must, with the same list. If end is set, what runs on this communicator
// is ended first, as after the loss of a rank; it can then only be closed. The
// caller closes the new communicator. It needs NCCL 2.27.
func (c *Comm) Shrink(ctx context.Context, exclude []int, end bool, cfg Config) (*Comm, error) {
	list := make([]int32, 0, len(exclude))
	for _, r := range exclude {
		if r < 0 || r >= c.size || r == c.rank || slices.Contains(list, int32(r)) {
			return nil, invalid("rank %d of %d cannot be excluded by rank %d", r, c.size, c.rank)
		}
		list = append(list, int32(r))
	}
	if len(list) == 0 {
		return nil, invalid("nobody is excluded")
	}
	flags := 0
	if end {
		flags = 1
	}
	return c.child(ctx, "Shrink", false, cfg, func(out *ncclsys.Slot, raw *ncclsys.Config) error {
		err := c.lib.sys.CommShrink(c.handle(), list, out, raw, flags)
		if end {
			c.move(open, revoked)
		}
		return err
	})
}

// GrowID makes an id by which new ranks join a greater communicator, on the rank
// that will give it to Grow. It needs NCCL 2.29.
func (c *Comm) GrowID() (UniqueID, error) {
	u, err := c.enter("GrowID")
	if err != nil {
		return UniqueID{}, err
	}
	id, err := c.lib.sys.CommGetUniqueID(c.handle())
	return id.Bytes, c.finish(u, err)
}

// Grow makes a communicator with more ranks: all ranks of this one call it, the
// one that made the id with it and the others with nil, and the new ones call
// Library.Join. Ranks keep their numbers. The caller closes the new communicator,
// and this one. It needs NCCL 2.29.
func (c *Comm) Grow(ctx context.Context, size int, id *UniqueID, cfg Config) (*Comm, error) {
	if size <= c.size || size > math.MaxInt32 {
		return nil, invalid("growing from %d to %d ranks", c.size, size)
	}
	var raw *ncclsys.UniqueID
	if id != nil {
		raw = &ncclsys.UniqueID{Bytes: *id}
	}
	return c.child(ctx, "Grow", false, cfg, func(out *ncclsys.Slot, config *ncclsys.Config) error {
		return c.lib.sys.CommGrow(c.handle(), size, raw, -1, out, config)
	})
}

// Join makes the communicator of a new rank of one that grows: see Comm.Grow.
func (l *Library) Join(ctx context.Context, d *cuda.Device, id UniqueID, rank, size int, cfg Config) (*Comm, error) {
	if size > math.MaxInt32 || rank < 0 || rank >= size {
		return nil, invalid("rank %d of %d", rank, size)
	}
	return l.create(ctx, "Join", d, nil, false, cfg, func(out *ncclsys.Slot, raw *ncclsys.Config) error {
		return l.sys.CommGrow(0, size, &ncclsys.UniqueID{Bytes: id}, rank, out, raw)
	})
}

// child takes the communicator and makes another from it.
func (c *Comm) child(ctx context.Context, what string, absent bool, cfg Config, call func(*ncclsys.Slot, *ncclsys.Config) error) (*Comm, error) {
	if err := c.lib.grouped(what); err != nil {
		return nil, err
	}
	if err := c.take(what, nil, open|revoked); err != nil {
		return nil, err
	}
	return c.lib.create(ctx, what, c.dev, c, absent, cfg, call)
}

// move changes the state, if it is the one expected.
func (c *Comm) move(from, to state) {
	c.lock()
	defer c.unlock()
	if c.state == from {
		c.state = to
		c.changed.Broadcast()
	}
}
