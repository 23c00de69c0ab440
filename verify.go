package tutti

import (
	"context"
	"math/bits"
	"unsafe"

	"github.com/tutti-go/tutti/internal/crc32c"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// verifyEvery is the interval at which operations with equal results on all ranks are compared.
const verifyEvery = 16

// A verifier compares the ranks' results. It belongs to the turn; see queue.
type verifier struct {
	done uint64 // number of operations with equal results, which is the same on all ranks
	own  [1]uint64
	sums []uint64 // by rank
	call [1]engine.Call
}

// verify compares the ranks' results of every verifyEvery-th operation that leaves equal results on all
// ranks. The operation is complete. The goroutine that has the turn calls it and owns c.verifier. If results
// differ, it fails the group with ErrCorrupt and returns the first cause.
func (c *Comm) verify(ctx context.Context, seq uint64, calls []engine.Call) error {
	v := c.verifier
	equal := false
	for i := range calls {
		equal = equal || equalResults(&calls[i])
	}
	if !equal {
		return nil
	}
	if v.done++; v.done%verifyEvery != 0 {
		return nil
	}
	v.own[0] = 0
	for i := range calls {
		if equalResults(&calls[i]) {
			v.own[0] = bits.RotateLeft64(v.own[0], 7) ^ digest(&calls[i])
		}
	}
	v.call[0] = engine.Call{
		Verb: engine.AllGather, Method: "Verify",
		Dst: engine.Mem{Ptr: unsafe.Pointer(&v.sums[0]), N: len(v.sums), Type: kernel.Uint64},
		Src: engine.Mem{Ptr: unsafe.Pointer(&v.own[0]), N: 1, Type: kernel.Uint64},
	}
	if err := c.e.Run(ctx, seq, v.call[:]); err != nil {
		return err
	}
	odd := minority(v.sums)
	if odd == nil {
		return nil
	}
	facts := engine.Facts{Event: engine.ResultsDiffer, Ranks: odd}
	if 2*len(odd) < c.size {
		facts.Event = engine.ResultDiffers
	}
	c.e.Fail(&engine.Failure{Kind: engine.ErrCorrupt, Op: calls[0].Op(), Seq: seq, Rank: odd[0], Facts: facts})
	return c.e.Failure()
}

// equalResults reports whether a call leaves the same content in host memory on all
// ranks.
func equalResults(c *engine.Call) bool {
	return c.Verb.Info().EqualResults && !c.OnDevice()
}

// digest returns the checksum of a call's result.
func digest(c *engine.Call) uint64 {
	sum := uint32(0)
	if c.Uneven {
		for _, m := range c.DstParts {
			sum = digestMem(sum, m)
		}
		return uint64(sum)
	}
	return uint64(digestMem(sum, c.Dst))
}

func digestMem(sum uint32, m engine.Mem) uint32 {
	if m.Bytes() == 0 {
		return sum
	}
	return crc32c.Update(sum, unsafe.Slice((*byte)(m.Ptr), m.Bytes()))
}

// minority returns the ranks whose sum differs from that of the majority. It returns all ranks if
// there is no majority, and nil if all sums are equal.
func minority(sums []uint64) (odd []int) {
	count := make(map[uint64]int, 1)
	for _, s := range sums {
		count[s]++
	}
	if len(count) == 1 {
		return nil
	}
	for r, s := range sums {
		if 2*count[s] <= len(sums) {
			odd = append(odd, r)
		}
	}
	return odd
}
