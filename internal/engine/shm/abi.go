package shm

import (
	"fmt"
	"hash/fnv"

	"github.com/tutti-go/tutti/internal/abi"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// ABI describes what all processes of a group must have in common: the layout of
// boards and rings in a segment, and the choice of the path for a call.
func ABI() string {
	return abi.Text("shm",
		"header", abi.Struct[header](), "regionBuffer", abi.Struct[regionBuffer](), "remoteBuffer", abi.Struct[remoteBuffer](), "request", abi.Struct[request](),
		"sizes", []int{lineBytes, slotsPerBoard, numWords, engine.LabelBytes, headerBytes, fingerprintBytes, regionBufferBytes, numWindows, pieceBits, ringBytes, ownerBits, serviceBytes},
		"marks", []int64{direct, windowed, remote},
		"vmread", []int{vmreadRootMax, vmreadReduceMax},
		"window", []int{minWindow, maxWindow, windowsPerCall},
		"divisions", divisions(),
	)
}

// divisions hashes how segments, windows and parts are divided, over several
// numbers of ranks and sizes. The hash changes when the arithmetic changes, even if
// no constant does.
func divisions() uint64 {
	h := fnv.New64a()
	for _, ranks := range []int{2, 3, 4, 7, 8, 16, 64, 100} {
		opt := Options{}
		opt.fillShared(ranks)
		bytes, slot := boardBytes(opt.slotDataBytes(ranks))
		fmt.Fprintln(h, ranks, opt.Small, opt.Ring, opt.Piece, opt.VMReadMin, bytes, slot, SharedBytes(ranks, Options{}))
		e := &Engine{g: &group{opt: opt, vmreadPair: ranks == 2, boards: make([]board, ranks), rings: []ring{{win: opt.Ring / numWindows / lineBytes * lineBytes}}}}
		for bytes := 1; bytes <= 1<<26; bytes *= 2 {
			m := engine.Mem{N: bytes, Type: kernel.Uint8}
			for verb := engine.AllReduce; verb < engine.Barrier; verb++ {
				c := engine.Call{Verb: verb, Src: m, Dst: m}
				fmt.Fprintln(h, verb, e.windowBytes(c.Fingerprint(), true), e.windowBytes(c.Fingerprint(), false), e.slotBytesOf(&c), e.prefersVMRead(&c))
			}
			fmt.Fprintln(h, newPartPlan(bytes, ranks, kernel.Uint8, opt.Piece))
		}
	}
	return h.Sum64()
}
