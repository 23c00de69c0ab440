package nccl

import (
	"context"
	"math"
	"slices"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/ncclsys"
)

// NoColor is the color of a rank that is in none of the communicators that Split
// makes, as NCCL_SPLIT_NOCOLOR.
const NoColor = -1

// Split makes one communicator for each color. Its ranks are ordered by key, then by
// their rank in c. All ranks of c must call Split. A rank with NoColor gets nil and no
// error. c stays usable. The caller closes the new communicator. Split needs NCCL 2.18.
func (c *Comm) Split(ctx context.Context, color, key int, cfg Config) (*Comm, error) {
	if color < NoColor || int(int32(color)) != color || int(int32(key)) != key {
		return nil, invalid("color %d or key %d is out of range", color, key)
	}
	return c.newChild(ctx, "Split", color == NoColor, cfg, func(out *ncclsys.Slot, raw *ncclsys.Config) error {
		return c.lib.sys.CommSplit(c.handle(), color, key, out, raw)
	})
}

// Shrink makes a communicator without the excluded ranks. All ranks that are not
// excluded must call it, with the same list; the excluded ranks must not. If end is set,
// as after the loss of a rank, NCCL first aborts the operations on c, which then can
// only be closed. The caller closes the new communicator. Shrink needs NCCL 2.27.
func (c *Comm) Shrink(ctx context.Context, exclude []int, end bool, cfg Config) (*Comm, error) {
	list := make([]int32, 0, len(exclude))
	for _, r := range exclude {
		if r < 0 || r >= c.size || r == c.rank || slices.Contains(list, int32(r)) {
			return nil, invalid("rank %d of %d cannot be excluded by rank %d", r, c.size, c.rank)
		}
		list = append(list, int32(r))
	}
	if len(list) == 0 {
		return nil, invalid("no rank is excluded")
	}
	flags := 0
	if end {
		flags = 1
	}
	return c.newChild(ctx, "Shrink", false, cfg, func(out *ncclsys.Slot, raw *ncclsys.Config) error {
		err := c.lib.sys.CommShrink(c.handle(), list, out, raw, flags)
		if end {
			c.transition(open, revoked)
		}
		return err
	})
}

// GrowID returns an id with which new ranks join a larger communicator. One rank calls
// it, and passes the id to Grow. It needs NCCL 2.29.
func (c *Comm) GrowID() (UniqueID, error) {
	u, err := c.acquireInContext("GrowID")
	if err != nil {
		return UniqueID{}, err
	}
	id, err := c.lib.sys.CommGetUniqueID(c.handle())
	return id.Bytes, c.finish(u, err)
}

// Grow makes a communicator of size ranks. All ranks of c call it: the rank that called
// GrowID with the id, the others with nil. The new ranks call Library.Join. Ranks of c
// keep their numbers. The caller closes the new communicator, and c. Grow needs NCCL
// 2.29.
func (c *Comm) Grow(ctx context.Context, size int, id *UniqueID, cfg Config) (*Comm, error) {
	if size <= c.size || size > math.MaxInt32 {
		return nil, invalid("a communicator of %d ranks cannot grow to %d ranks", c.size, size)
	}
	var raw *ncclsys.UniqueID
	if id != nil {
		raw = &ncclsys.UniqueID{Bytes: *id}
	}
	return c.newChild(ctx, "Grow", false, cfg, func(out *ncclsys.Slot, config *ncclsys.Config) error {
		return c.lib.sys.CommGrow(c.handle(), size, raw, -1, out, config)
	})
}

// Join makes the communicator of a new rank; see Comm.Grow.
func (l *Library) Join(ctx context.Context, d *cuda.Device, id UniqueID, rank, size int, cfg Config) (*Comm, error) {
	if size > math.MaxInt32 || rank < 0 || rank >= size {
		return nil, invalid("rank %d is not one of %d ranks", rank, size)
	}
	return l.create(ctx, "Join", d, nil, false, cfg, func(out *ncclsys.Slot, raw *ncclsys.Config) error {
		return l.sys.CommGrow(0, size, &ncclsys.UniqueID{Bytes: id}, rank, out, raw)
	})
}

// newChild takes c and creates another communicator from it.
func (c *Comm) newChild(ctx context.Context, what string, absent bool, cfg Config, call func(*ncclsys.Slot, *ncclsys.Config) error) (*Comm, error) {
	if err := c.lib.refuseInGroup(what); err != nil {
		return nil, err
	}
	if err := c.take(what, nil, open|revoked); err != nil {
		return nil, err
	}
	return c.lib.create(ctx, what, c.dev, c, absent, cfg, call)
}

// transition changes the state from one to another, if it is still the first.
func (c *Comm) transition(from, to state) {
	c.lock()
	defer c.unlock()
	if c.state == from {
		c.state = to
		c.changed.Broadcast()
	}
}
