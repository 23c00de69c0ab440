package enginetest

import (
	"fmt"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// An Op describes a collective operation in terms that are valid for every rank of
// a group of any size.
type Op struct {
	Verb     engine.Verb
	ReduceOp engine.ReduceOp
	Type     kernel.DType
	N        int // elements of one rank's share; of the largest share, if uneven
	Root     int // modulo the number of ranks
	InPlace  bool
	Uneven   bool
	Exact    bool // the input has the same result in every order
	Numbers  bool // the input of Min and Max has neither NaNs nor negative zeros
	Name     string
	Seed     uint64 // selects the inputs, the factors and the uneven counts
}

// String describes the operation for a failed test.
func (o Op) String() string {
	form, place := "", "out of place"
	if o.Uneven {
		form = "V"
	}
	if o.InPlace {
		place = "in place"
	}
	return fmt.Sprintf("%v%s(%d x %v, %v, root %d, %s, seed %#x)",
		o.Verb, form, o.N, o.Type, o.ReduceOp, o.Root, place, o.Seed)
}

// text is how an engine describes the operation in its errors.
func (o Op) text(size int) string {
	m := engine.Mem{N: o.N, Type: o.Type}
	if o.Verb == engine.AllToAll {
		m.N *= size
	}
	c := engine.Call{Verb: o.Verb, ReduceOp: o.ReduceOp, Uneven: o.Uneven, Root: o.root(size), Name: o.Name}
	switch {
	case o.Verb == engine.Barrier:
	case o.Verb == engine.AllToAll && o.Uneven:
		c.SrcParts = []engine.Mem{m}
	default:
		c.Src, c.Dst = m, m
	}
	return c.Fingerprint().Text(o.Name)
}

func (o Op) reduces() bool {
	switch o.Verb {
	case engine.AllReduce, engine.Reduce, engine.ReduceScatter, engine.Scan, engine.ExScan:
		return true
	}
	return false
}

func (o Op) root(size int) int {
	if !o.Verb.Rooted() {
		return 0
	}
	return o.Root % size
}

// class returns the kind of input that the operation needs.
func (o Op) class() class {
	switch {
	case !o.reduces() || !o.Exact || !o.Type.IsFloat():
		return wild
	case o.ReduceOp == engine.Prod:
		return factors
	case (o.ReduceOp == engine.Min || o.ReduceOp == engine.Max) && !o.Numbers:
		return wild
	case o.ReduceOp == engine.Avg:
		return averages
	}
	return addends
}

// scale returns a rank's factor for PreMul.
func (o Op) scale(rank int) float64 {
	k := mix(o.Seed, uint64(rank), 'x')
	small := float64(k%5) - 2
	if o.Exact {
		return small
	}
	return small + float64(k>>8%1000)/1024
}

// count returns how many elements rank from sends to rank to. For a verb without
// one of the two, that argument is zero.
func (o Op) count(from, to, size int) int {
	if !o.Uneven {
		return o.N
	}
	k := mix(o.Seed, uint64(from), uint64(to), 'n')
	switch {
	case from+to == int(o.Seed%uint64(size)):
		return o.N
	case k%3 == 0:
		return 0
	}
	return int(k >> 8 % uint64(o.N+1))
}

// sourceCounts returns the sizes of the shares of a rank's source: one for an
// undivided source, none if the rank has no source.
func (o Op) sourceCounts(rank, size int) []int {
	counts := make([]int, 0, size)
	switch o.Verb {
	case engine.AllReduce, engine.Reduce, engine.Scan, engine.ExScan:
		counts = append(counts, o.N)
	case engine.Broadcast:
		if rank == o.root(size) {
			counts = append(counts, o.N)
		}
	case engine.AllGather, engine.Gather:
		counts = append(counts, o.count(rank, 0, size))
	case engine.Scatter:
		if rank != o.root(size) {
			break
		}
		fallthrough
	case engine.ReduceScatter:
		for to := range size {
			counts = append(counts, o.count(0, to, size))
		}
	case engine.AllToAll:
		for to := range size {
			counts = append(counts, o.count(rank, to, size))
		}
	}
	return counts
}

// sources returns the shares of a rank's source.
func (o Op) sources(c *cache, rank, size int) [][]byte {
	counts := o.sourceCounts(rank, size)
	flat := o.input(c, rank, size, counts)
	shares := make([][]byte, len(counts))
	for i, n := range counts {
		n *= o.Type.Size()
		shares[i], flat = flat[:n:n], flat[n:]
	}
	return shares
}

func (o Op) input(c *cache, rank, size int, counts []int) []byte {
	n := 0
	for _, k := range counts {
		n += k
	}
	key := cacheKey{t: o.Type, c: o.class(), rank: rank, ranks: size, n: n, seed: o.Seed}
	return c.get(key, func() []byte { return newInput(key.t, key.c, key.seed, rank, size, n) })
}

// results returns the shares of a rank's destination after the operation: one for
// an undivided destination, none if the rank receives nothing.
func (o Op) results(c *cache, rank, size int) [][]byte {
	root := o.root(size)
	switch o.Verb {
	case engine.Reduce:
		if rank != root {
			break
		}
		fallthrough
	case engine.AllReduce:
		return [][]byte{o.reduction(c, size, size)}
	case engine.Scan:
		return [][]byte{o.reduction(c, rank+1, size)}
	case engine.ExScan:
		if rank > 0 {
			return [][]byte{o.reduction(c, rank, size)}
		}
	case engine.ReduceScatter:
		all, lo := o.reduction(c, size, size), 0
		for to := range rank {
			lo += o.count(0, to, size) * o.Type.Size()
		}
		return [][]byte{all[lo : lo+o.count(0, rank, size)*o.Type.Size()]}
	case engine.Broadcast:
		return o.sources(c, root, size)
	case engine.Scatter:
		return o.sources(c, root, size)[rank : rank+1]
	case engine.Gather:
		if rank != root {
			break
		}
		fallthrough
	case engine.AllGather:
		shares := make([][]byte, size)
		for from := range shares {
			shares[from] = o.sources(c, from, size)[0]
		}
		return shares
	case engine.AllToAll:
		shares := make([][]byte, size)
		for from := range shares {
			shares[from] = o.sources(c, from, size)[rank]
		}
		return shares
	}
	return nil
}

// reduction returns the combined sources of the first ranks of a group.
func (o Op) reduction(c *cache, ranks, size int) []byte {
	counts := o.sourceCounts(0, size)
	in, scales := make([][]byte, ranks), make([]float64, ranks)
	n := 0
	for rank := range in {
		in[rank] = o.input(c, rank, size, counts)
		scales[rank] = o.scale(rank)
		n = len(in[rank])
	}
	key := cacheKey{t: o.Type, c: o.class(), red: o.ReduceOp, combined: ranks, ranks: size, n: n, seed: o.Seed}
	return c.get(key, func() []byte { return reduce(o.Type, o.ReduceOp, scales, in) })
}
