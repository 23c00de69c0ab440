package bench

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"

	"github.com/tutti-go/tutti"
)

// period is the period of a source, in elements. It is prime, so that data that is
// shifted by a round number of bytes is wrong.
const period = 509

// A pattern is the values of all ranks' sources for one type and reduction: integers so small that
// every result is exact in every type and order. It computes its tables when they are first used,
// so only one goroutine may use it.
type pattern struct {
	t      tutti.DType
	reduce string
	ranks  int
	tables map[int][]byte // by rank: one period of its source
	totals map[int][]byte // by number of ranks: one period of the reduction of their sources
}

func newPattern(t tutti.DType, reduce string, ranks int) *pattern {
	return &pattern{t: t, reduce: reduce, ranks: ranks, tables: map[int][]byte{}, totals: map[int][]byte{}}
}

// value returns element k of a period of a rank's source.
func (p *pattern) value(k, rank int) int {
	if p.reduce == "prod" {
		if rank == k%p.ranks || rank == (7*k+3)%p.ranks {
			return 2
		}
		return 1
	}
	// A number below m, so that the sum over all ranks is below maxSum.
	m := max(2, min(13, maxSum/p.ranks))
	h := uint32(k+1)*2654435761 ^ uint32(rank+1)*2246822519
	v := int(h >> 16 % uint32(m))
	if m == 2 && p.ranks > maxSum {
		v *= (rank + k) & 1
	}
	if p.reduce == "avg" {
		v *= p.ranks // an average multiplies by 1/ranks first
	}
	return v
}

// source returns one period of a rank's source.
func (p *pattern) source(rank int) []byte {
	if b := p.tables[rank]; b != nil {
		return b
	}
	b := make([]byte, period*p.t.Size())
	for k := range period {
		put(p.t, b, k, p.value(k, rank))
	}
	p.tables[rank] = b
	return b
}

// result returns one period of the result of a reduction over the first ranks.
func (p *pattern) result(ranks int) []byte {
	if b := p.totals[ranks]; b != nil {
		return b
	}
	b := make([]byte, period*p.t.Size())
	for k := range period {
		acc := p.value(k, 0)
		for r := 1; r < ranks; r++ {
			v := p.value(k, r)
			switch p.reduce {
			case "prod":
				acc *= v
			case "min":
				acc = min(acc, v)
			case "max":
				acc = max(acc, v)
			case "and":
				acc &= v
			case "or":
				acc |= v
			case "xor":
				acc ^= v
			default:
				acc += v
			}
		}
		switch p.reduce {
		case "avg":
			acc /= p.ranks
		case "premul":
			acc *= preMul
		}
		put(p.t, b, k, acc)
	}
	p.totals[ranks] = b
	return b
}

// put writes an integer as element k. Integers wrap, as in the engines.
func put(t tutti.DType, b []byte, k, v int) {
	order := binary.NativeEndian
	switch t {
	case tutti.Int8Type, tutti.Uint8Type:
		b[k] = byte(v)
	case tutti.Int16Type, tutti.Uint16Type:
		order.PutUint16(b[2*k:], uint16(v))
	case tutti.Int32Type, tutti.Uint32Type:
		order.PutUint32(b[4*k:], uint32(v))
	case tutti.Int64Type, tutti.Uint64Type:
		order.PutUint64(b[8*k:], uint64(v))
	case tutti.Float16Type:
		order.PutUint16(b[2*k:], uint16(tutti.ToFloat16(float32(v))))
	case tutti.BFloat16Type:
		order.PutUint16(b[2*k:], uint16(tutti.ToBFloat16(float32(v))))
	case tutti.Float64Type:
		order.PutUint64(b[8*k:], math.Float64bits(float64(v)))
	default:
		order.PutUint32(b[4*k:], math.Float32bits(float32(v)))
	}
}

// get reads element k.
func get(t tutti.DType, b []byte, k int) float64 {
	order := binary.NativeEndian
	switch t {
	case tutti.Int8Type:
		return float64(int8(b[k]))
	case tutti.Uint8Type:
		return float64(b[k])
	case tutti.Int16Type:
		return float64(int16(order.Uint16(b[2*k:])))
	case tutti.Uint16Type:
		return float64(order.Uint16(b[2*k:]))
	case tutti.Int32Type:
		return float64(int32(order.Uint32(b[4*k:])))
	case tutti.Uint32Type:
		return float64(order.Uint32(b[4*k:]))
	case tutti.Int64Type:
		return float64(int64(order.Uint64(b[8*k:])))
	case tutti.Uint64Type:
		return float64(order.Uint64(b[8*k:]))
	case tutti.Float16Type:
		return float64(tutti.Float16(order.Uint16(b[2*k:])).Float32())
	case tutti.BFloat16Type:
		return float64(tutti.BFloat16(order.Uint16(b[2*k:])).Float32())
	case tutti.Float64Type:
		return math.Float64frombits(order.Uint64(b[8*k:]))
	}
	return float64(math.Float32frombits(order.Uint32(b[4*k:])))
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// fill repeats a period in b, beginning with its element at phase.
func fill(b, table []byte, size, phase int) {
	n := copy(b, table[phase%period*size:])
	for n < len(b) {
		n += copy(b[n:], table)
	}
}

// poison writes a value that no result has.
func poison(b []byte) {
	for i := range b {
		b[i] = 0xA5
	}
}

// A region is a part of a destination, with its expected values.
type region struct {
	at, n int // elements
	table []byte
	phase int
}

// regions returns the expected contents of a rank's destination; nil if the rank has none.
func (s *spec) regions(p *pattern, rank int) []region {
	switch s.op.name {
	case "allreduce":
		return []region{{0, s.elems, p.result(p.ranks), 0}}
	case "reduce":
		if rank != root {
			return nil
		}
		return []region{{0, s.elems, p.result(p.ranks), 0}}
	case "reducescatter":
		return []region{{0, s.part, p.result(p.ranks), rank * s.part}}
	case "scan":
		return []region{{0, s.elems, p.result(rank + 1), 0}}
	case "exscan":
		if rank == 0 {
			return nil
		}
		return []region{{0, s.elems, p.result(rank), 0}}
	case "broadcast":
		return []region{{0, s.elems, p.source(root), 0}}
	case "scatter":
		return []region{{0, s.part, p.source(root), rank * s.part}}
	case "sendrecv":
		return []region{{0, s.elems, p.source((rank + p.ranks - 1) % p.ranks), 0}}
	case "gather", "allgather", "alltoall":
		if s.op.name == "gather" && rank != root {
			return nil
		}
		var list []region
		for r := range p.ranks {
			phase := 0
			if s.op.name == "alltoall" {
				phase = rank * s.part
			}
			list = append(list, region{r * s.part, s.part, p.source(r), phase})
		}
		return list
	}
	return nil
}

// A Wrong describes wrong results of a rank at a point.
type Wrong struct {
	What  string `json:"what"` // the point
	Rank  int    `json:"rank"`
	Index int    `json:"index"` // of the first wrong element in the rank's destination
	Got   string `json:"got"`
	Want  string `json:"want"`
	Count int    `json:"count"` // number of wrong elements of the rank
}

// check compares a destination with its regions.
func (p *pattern) check(dst []byte, list []region, w *Wrong) {
	size := p.t.Size()
	for _, c := range list {
		for i := 0; i < c.n; {
			k := (c.phase + i) % period
			n := min(c.n-i, period-k)
			got, want := dst[(c.at+i)*size:(c.at+i+n)*size], c.table[k*size:(k+n)*size]
			if !bytes.Equal(got, want) {
				p.scan(got, want, c.at+i, w)
			}
			i += n
		}
	}
}

// scan finds the wrong elements of a part of a destination. It adds their number to w, and
// describes the first one of the point.
func (p *pattern) scan(got, want []byte, at int, w *Wrong) {
	size := p.t.Size()
	for j := range len(got) / size {
		if bytes.Equal(got[j*size:(j+1)*size], want[j*size:(j+1)*size]) {
			continue
		}
		g, x := get(p.t, got, j), get(p.t, want, j)
		if p.reduce == "avg" && math.Abs(g-x) <= p.tolerance()*x {
			continue
		}
		if w.Count == 0 {
			w.Index, w.Got, w.Want = at+j, number(g), number(x)
		}
		w.Count++
	}
}

// tolerance is the accepted relative error of averages of floats: ranks * (1/ranks)
// can differ from one, so sums are rounded.
func (p *pattern) tolerance() float64 {
	eps := map[tutti.DType]float64{
		tutti.Float16Type: 1. / (1 << 10), tutti.BFloat16Type: 1. / (1 << 7), tutti.Float32Type: 1. / (1 << 23),
		tutti.Float64Type: 1. / (1 << 52),
	}
	return 2 * float64(p.ranks) * eps[p.t]
}
