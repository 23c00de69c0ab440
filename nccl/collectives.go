package nccl

import (
	"github.com/tutti-go/tutti/cuda"
)

// checkNil returns an error if there is no communicator.
func (c *Comm) checkNil() error {
	if c == nil {
		return invalid("no communicator")
	}
	return nil
}

// check validates the arguments of a call. The send buffer must have sends*count
// elements and the receive buffer recvs*count; zero means that this rank does not use
// that buffer.
func (c *Comm) check(send, recv *Buffer, count, sends, recvs int, s *cuda.Stream) error {
	if err := c.checkNil(); err != nil {
		return err
	}
	if err := s.Alive(); err != nil {
		return err
	}
	if s.Device() != c.dev && s.Device().Ordinal() != c.dev.Ordinal() {
		return invalid("the stream is on %v, the communicator on %v", s.Device(), c.dev)
	}
	if sends > 0 {
		if err := send.check("send", c); err != nil {
			return err
		}
		if send.n != sends*count {
			return invalid("the send buffer has %d elements, not %d", send.n, sends*count)
		}
	}
	if recvs > 0 {
		if err := recv.check("receive", c); err != nil {
			return err
		}
		if recv.n != recvs*count {
			return invalid("the receive buffer has %d elements, not %d", recv.n, recvs*count)
		}
	}
	if sends > 0 && recvs > 0 && send.t != recv.t {
		return invalid("the buffers hold %v and %v", send.t, recv.t)
	}
	return nil
}

// checkOverlap returns an error if the buffers overlap in a way that NCCL does not allow. It
// allows send to start at element i of recv, or recv to start at element j of send. A
// negative i or j allows neither.
func checkOverlap(send, recv *Buffer, i, j int) error {
	if i == 0 && send.ptr == recv.ptr {
		return nil
	}
	if send.n == 0 || recv.n == 0 || send.ptr >= recv.at(recv.n) || recv.ptr >= send.at(send.n) {
		return nil
	}
	if i >= 0 && send.ptr == recv.at(i) || j >= 0 && recv.ptr == send.at(j) {
		return nil
	}
	return invalid("the buffers overlap in another way than in place")
}

func (c *Comm) checkRoot(root int) error {
	if err := c.checkNil(); err != nil {
		return err
	}
	if root < 0 || root >= c.size {
		return invalid("rank %d is not one of %d ranks", root, c.size)
	}
	return nil
}

// first returns the first error.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// AllReduce reduces the elements of all ranks into every rank's recv. It is in place if
// send and recv are the same.
func (c *Comm) AllReduce(send, recv Buffer, op Op, s *cuda.Stream) error {
	err := c.check(&send, &recv, send.n, 1, 1, s)
	if err == nil {
		err = op.check(c, send.t)
	}
	if err == nil {
		err = checkOverlap(&send, &recv, 0, -1)
	}
	if err != nil {
		return c.recordRefusal(err)
	}
	u, err := c.acquire("AllReduce")
	if err != nil {
		return c.recordRefusal(err)
	}
	return c.finish(u, c.lib.sys.AllReduce(u.around, send.ptr, recv.ptr, send.n, send.t.code(), op.code-1, c.handle(), s.Handle()))
}

// Reduce reduces the elements of all ranks into the root's recv. The other ranks' recv is
// not used. It is in place if send and recv are the same.
func (c *Comm) Reduce(send, recv Buffer, op Op, root int, s *cuda.Stream) error {
	err := c.checkRoot(root)
	if err == nil {
		recvs := 0
		if c.rank == root {
			recvs = 1
			err = checkOverlap(&send, &recv, 0, -1)
		} else {
			recv = Buffer{}
		}
		err = first(c.check(&send, &recv, send.n, 1, recvs, s), op.check(c, send.t), err)
	}
	if err != nil {
		return c.recordRefusal(err)
	}
	u, err := c.acquire("Reduce")
	if err != nil {
		return c.recordRefusal(err)
	}
	return c.finish(u, c.lib.sys.Reduce(u.around, send.ptr, recv.ptr, send.n, send.t.code(), op.code-1, root, c.handle(), s.Handle()))
}

// Broadcast copies the root's send to every rank's recv. The other ranks' send is not
// used. It is in place if send and recv are the same.
func (c *Comm) Broadcast(send, recv Buffer, root int, s *cuda.Stream) error {
	err := c.checkRoot(root)
	if err == nil {
		sends := 0
		if c.rank == root {
			sends = 1
			err = checkOverlap(&send, &recv, 0, -1)
		} else {
			send = recv
		}
		err = first(c.check(&send, &recv, recv.n, sends, 1, s), err)
	}
	if err != nil {
		return c.recordRefusal(err)
	}
	u, err := c.acquire("Broadcast")
	if err != nil {
		return c.recordRefusal(err)
	}
	return c.finish(u, c.lib.sys.Broadcast(u.around, send.ptr, recv.ptr, recv.n, recv.t.code(), root, c.handle(), s.Handle()))
}

// AllGather copies every rank's send into every rank's recv, in rank order. It is in
// place if send is this rank's part of recv.
func (c *Comm) AllGather(send, recv Buffer, s *cuda.Stream) error {
	err := c.checkNil()
	if err == nil {
		err = first(c.check(&send, &recv, send.n, 1, c.size, s), checkOverlap(&send, &recv, c.rank*send.n, -1))
	}
	if err != nil {
		return c.recordRefusal(err)
	}
	u, err := c.acquire("AllGather")
	if err != nil {
		return c.recordRefusal(err)
	}
	return c.finish(u, c.lib.sys.AllGather(u.around, send.ptr, recv.ptr, send.n, send.t.code(), c.handle(), s.Handle()))
}

// ReduceScatter reduces the elements of all ranks and copies the i-th part of the result
// to rank i's recv. It is in place if recv is this rank's part of send.
func (c *Comm) ReduceScatter(send, recv Buffer, op Op, s *cuda.Stream) error {
	err := c.checkNil()
	if err == nil {
		err = first(c.check(&send, &recv, recv.n, c.size, 1, s), op.check(c, recv.t), checkOverlap(&send, &recv, -1, c.rank*recv.n))
	}
	if err != nil {
		return c.recordRefusal(err)
	}
	u, err := c.acquire("ReduceScatter")
	if err != nil {
		return c.recordRefusal(err)
	}
	return c.finish(u, c.lib.sys.ReduceScatter(u.around, send.ptr, recv.ptr, recv.n, recv.t.code(), op.code-1, c.handle(), s.Handle()))
}

// AllToAll sends the i-th part of send to rank i, and receives the i-th part of recv from
// rank i. It cannot be in place.
func (c *Comm) AllToAll(send, recv Buffer, s *cuda.Stream) error {
	err := c.check(&send, &recv, send.n, 1, 1, s)
	if err == nil && send.n%c.size != 0 {
		err = invalid("%d elements cannot be divided between %d ranks", send.n, c.size)
	}
	if err = first(err, checkOverlap(&send, &recv, -1, -1)); err != nil {
		return c.recordRefusal(err)
	}
	n := send.n / c.size
	if c.lib.sys.Native() {
		u, err := c.acquire("AllToAll")
		if err != nil {
			return c.recordRefusal(err)
		}
		return c.finish(u, c.lib.sys.AllToAll(u.around, send.ptr, recv.ptr, n, send.t.code(), c.handle(), s.Handle()))
	}
	u, err := c.acquireInContext("AllToAll")
	if err != nil {
		return c.recordRefusal(err)
	}
	return c.finish(u, c.viaMessages(send, recv, n, 0, c.size, 0, c.size, s))
}

// Gather copies every rank's send into the root's recv, in rank order. The other ranks'
// recv is not used. It is in place if send is the root's part of recv.
func (c *Comm) Gather(send, recv Buffer, root int, s *cuda.Stream) error {
	err := c.checkRoot(root)
	if err == nil {
		recvs := 0
		if c.rank == root {
			recvs = c.size
			err = checkOverlap(&send, &recv, root*send.n, -1)
		} else {
			recv = Buffer{}
		}
		err = first(c.check(&send, &recv, send.n, 1, recvs, s), err)
	}
	if err != nil {
		return c.recordRefusal(err)
	}
	if c.lib.sys.Native() {
		u, err := c.acquire("Gather")
		if err != nil {
			return c.recordRefusal(err)
		}
		return c.finish(u, c.lib.sys.Gather(u.around, send.ptr, recv.ptr, send.n, send.t.code(), root, c.handle(), s.Handle()))
	}
	u, err := c.acquireInContext("Gather")
	if err != nil {
		return c.recordRefusal(err)
	}
	from := 0
	if c.rank == root {
		from = c.size
	}
	return c.finish(u, c.viaMessages(send, recv, send.n, root, root+1, 0, from, s))
}

// Scatter copies the i-th part of the root's send to rank i's recv. The other ranks' send
// is not used. It is in place if recv is the root's part of send. Scatter returns when the operation
// is enqueued on the stream; Abort ends it.
func (c *Comm) Scatter(send, recv Buffer, root int, s *cuda.Stream) error {
	err := c.checkRoot(root)
	if err == nil {
		sends := 0
		if c.rank == root {
			sends = c.size
			err = checkOverlap(&send, &recv, -1, root*recv.n)
		} else {
			send = Buffer{}
		}
		err = first(c.check(&send, &recv, recv.n, sends, 1, s), err)
	}
	if err != nil {
		return c.recordRefusal(err)
	}
	if c.lib.sys.Native() {
		u, err := c.acquire("Scatter")
		if err != nil {
			return c.recordRefusal(err)
		}
		return c.finish(u, c.lib.sys.Scatter(u.around, send.ptr, recv.ptr, recv.n, recv.t.code(), root, c.handle(), s.Handle()))
	}
	u, err := c.acquireInContext("Scatter")
	if err != nil {
		return c.recordRefusal(err)
	}
	to := 0
	if c.rank == root {
		to = c.size
	}
	return c.finish(u, c.viaMessages(send, recv, recv.n, 0, to, root, root+1, s))
}

// viaMessages performs a collective as one group of Send and Recv, for NCCL versions without
// the collective. It sends n elements to each rank from to to toEnd-1, and receives n
// elements from each rank from from to fromEnd-1. A buffer of n elements serves every
// peer. The error is NCCL's. The caller has taken c.
func (c *Comm) viaMessages(send, recv Buffer, n, to, toEnd, from, fromEnd int, s *cuda.Stream) error {
	sys := c.lib.sys
	if err := sys.GroupStart(); err != nil {
		return err
	}
	var err error
	part := func(b Buffer, peer int) uintptr {
		if b.n == n {
			return b.ptr
		}
		return b.at(peer * n)
	}
	own := to <= c.rank && c.rank < toEnd && from <= c.rank && c.rank < fromEnd
	own = own && part(send, c.rank) == part(recv, c.rank) // in place: no copy to this rank itself
	for peer := to; peer < toEnd && err == nil; peer++ {
		if peer != c.rank || !own {
			err = sys.Send(nil, part(send, peer), n, send.t.code(), peer, c.handle(), s.Handle())
		}
	}
	for peer := from; peer < fromEnd && err == nil; peer++ {
		if peer != c.rank || !own {
			err = sys.Recv(nil, part(recv, peer), n, recv.t.code(), peer, c.handle(), s.Handle())
		}
	}
	if err != nil {
		sys.GroupSpoil()
	}
	return first(err, sys.GroupEnd())
}

// Send sends to peer, which must receive the same number of elements of the same type.
// Messages between two ranks match in order; there are no tags. Ranks that send to each
// other call Send and Recv in one Group.
func (c *Comm) Send(b Buffer, peer int, s *cuda.Stream) error {
	if err := first(c.checkRoot(peer), c.check(&b, nil, b.n, 1, 0, s)); err != nil {
		return c.recordRefusal(err)
	}
	u, err := c.acquire("Send")
	if err != nil {
		return c.recordRefusal(err)
	}
	return c.finish(u, c.lib.sys.Send(u.around, b.ptr, b.n, b.t.code(), peer, c.handle(), s.Handle()))
}

// Recv receives from peer.
func (c *Comm) Recv(b Buffer, peer int, s *cuda.Stream) error {
	if err := first(c.checkRoot(peer), c.check(nil, &b, b.n, 0, 1, s)); err != nil {
		return c.recordRefusal(err)
	}
	u, err := c.acquire("Recv")
	if err != nil {
		return c.recordRefusal(err)
	}
	return c.finish(u, c.lib.sys.Recv(u.around, b.ptr, b.n, b.t.code(), peer, c.handle(), s.Handle()))
}
