package p2p

import (
	"github.com/tutti-go/tutti/internal/abi"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/transport"
)

// ABI describes what ranks must have in common: the encoding of notes.
func ABI() string {
	var t transport.Note
	(&note{visited: 2, waits: []engine.MessageWait{{Rank: 1, Peer: 2, Tag: 3, Send: true}}}).put(&t)
	return abi.Text("p2p", "note", t[:], "layout", []int{noteHeader, waitBytes, mostWaits, sendFlag})
}
