package network

import (
	"fmt"
	"hash/fnv"

	"github.com/tutti-go/tutti/internal/abi"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/transport"
)

// ABI describes what all ranks of a group must have in common: the head of a frame,
// and the algorithm and segment size for each call.
func ABI() string {
	var opt Options
	opt.fill(1)
	f := fingerprint{sig: engine.Sig{Verb: 1, Type: 2, Red: 3, Uneven: true, Root: 4, Count: 5, Name: 6}, name: engine.Label{7}}
	var head transport.Head
	f.put(head[thisAt:])
	setTransferBytes(&head, 8)
	return abi.Text("wire",
		"head", []int{stepAt, algorithmAt, transferBytesAt, thisAt, prevAt, sigBytes, nameBytes, fingerprintBytes}, "sample", fmt.Sprintf("%x", head),
		"segment", []int{defaultSegment, grain, opt.Segment}, "fuseMost", maxFusedBytes,
		"ladders", crossovers, "ordered", orderedCrossovers, "uneven", unevenAlgorithms, "rest", unlimited, "algorithms", algorithmNames,
		"choices", choices(),
	)
}

// choices hashes the chosen algorithms over verbs, sizes and numbers of ranks. The
// hash changes when choose changes, even if no table does.
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
