package shm

import (
	"fmt"
	"hash/fnv"

	"github.com/tutti-go/tutti/internal/abi"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// ABI describes what processes must have in common: how their boards and rings
// lie in segments, and which way a call's data takes.
func ABI() string {
	return abi.Text("shm",
		"header", abi.Struct[header](), "place", abi.Struct[place](), "far", abi.Struct[far](), "request", abi.Struct[request](),
		"sizes", []int{line, depth, words, nameBytes, headerBytes, sigBytes, placeBytes, windows, pieceBits, ringBytes, ownerBits, serviceBytes},
		"marks", []int64{direct, windowed, afar},
		"peek", []int{peekRoot, peekReduce},
		"window", []int{leastWindow, mostWindow, windowsPerCall},
		"ways", ways(),
	)
}

// ways is a hash of how segments, windows and parts are divided, over numbers of
// ranks and sizes: it changes when the arithmetic does, also where no constant has.
func ways() uint64 {
	h := fnv.New64a()
	for _, ranks := range []int{2, 3, 4, 7, 8, 16, 64, 100} {
		opt := Options{}
		opt.fillShared(ranks)
		bytes, slot := boardBytes(opt.small(ranks))
		fmt.Fprintln(h, ranks, opt.Small, opt.Ring, opt.Piece, opt.Peek, bytes, slot, SharedBytes(ranks, Options{}))
		e := &Engine{g: &group{opt: opt, pair: ranks == 2, boards: make([]board, ranks), rings: []ring{{win: opt.Ring / windows / line * line}}}}
		for bytes := 1; bytes <= 1<<26; bytes *= 2 {
			m := engine.Mem{N: bytes, Type: kernel.Uint8}
			for verb := engine.AllReduce; verb <= engine.AllToAll; verb++ {
				c := engine.Call{Verb: verb, Src: m, Dst: m}
				fmt.Fprintln(h, verb, e.windowBytes(c.Sig(), true), e.windowBytes(c.Sig(), false), e.room(&c), e.swaps(&c))
			}
			fmt.Fprintln(h, newPlan(bytes, ranks, kernel.Uint8, opt.Piece))
		}
	}
	return h.Sum64()
}
