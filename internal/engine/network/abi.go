package network

import (
	"fmt"
	"hash/fnv"

	"github.com/tutti-go/tutti/internal/abi"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/transport"
)

// ABI describes what ranks must have in common: a frame's head, and which
// algorithm carries out a call, in segments of how many bytes.
func ABI() string {
	var opt Options
	opt.fill(1)
	m := mark{sig: engine.Sig{Verb: 1, Type: 2, Red: 3, Uneven: true, Root: 4, Count: 5, Name: 6}, name: engine.Label{7}}
	var head transport.Head
	m.put(head[thisAt:])
	setWhole(&head, 8)
	return abi.Text("wire",
		"head", []int{stepAt, wayAt, wholeAt, thisAt, prevAt, sigBytes, nameBytes, markBytes}, "sample", fmt.Sprintf("%x", head),
		"segment", []int{defaultSegment, grain, opt.Segment}, "fuseMost", fuseMost,
		"ladders", ladders, "ordered", ordered, "uneven", uneven, "rest", rest, "algorithms", algorithmNames,
		"choices", choices(),
	)
}

// choices is a hash of which algorithms are chosen, over verbs, sizes and numbers
// of ranks: it changes when choose does, also where no table has.
func choices() uint64 {
	h := fnv.New64a()
	for _, reproducible := range []bool{false, true} {
		opt := Options{Reproducible: reproducible}
		for verb := engine.AllReduce; verb <= engine.Alloc; verb++ {
			for _, ranks := range []int{2, 3, 4, 5, 8, 12, 16, 100} {
				for count := int64(0); count < 1<<22; count = 2*count + 1 {
					s := engine.Sig{Verb: verb, Type: kernel.Float32, Count: count}
					if verb.Reduces() {
						s.Red = engine.Sum
					}
					_, _ = h.Write([]byte{byte(opt.choose(s, ranks))}) // never fails
				}
			}
		}
	}
	return h.Sum64()
}
