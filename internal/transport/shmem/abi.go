package shmem

import (
	"github.com/tutti-go/tutti/internal/abi"
	"github.com/tutti-go/tutti/internal/transport"
)

// ABI describes what all processes of a group must have in common: the layout of the parts.
func ABI() string {
	pairs := []any{
		"header", abi.Struct[header](), "record", abi.Struct[record](), "place", abi.Struct[place](),
		"kinds",
		[]int{kindInline, kindSlab, kindBuffer, kindTaken, kindNote, watches},
		"note", transport.NoteBytes,
		"line", lineBytes, "page", pageBytes,
	}
	for _, ranks := range []int{2, 4, 5, 16, 17, 64, 65, 128} {
		l := newLayout(ranks, defaultSizes(ranks))
		pairs = append(pairs, ranks, []int{
			l.record, l.entries, l.blocks[0].bytes, l.blocks[0].count, l.blocks[1].bytes, l.blocks[1].count,
			l.blocks[2].bytes, l.blocks[2].count, l.chunk, l.chunks, l.streams, l.ringsAt, l.slabAt, l.streamsAt, l.bytes,
		})
	}
	return abi.Text("shmem", pairs...)
}
