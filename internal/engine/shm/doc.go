// Package shm is the engine for ranks that can see each other's memory.
//
// Each rank has a board: a few words and slots that it alone writes and all
// others read. A rank announces an operation by writing its fingerprint, and
// its data if that is small, into the next slot; the others pull what they
// need from there or, when the data is large, straight from the announcing
// rank's buffers. No rank ever writes another rank's memory.
//
// There are three ways through an operation:
//
//   - small (small.go): the data lies in the slot beside the fingerprint; every
//     rank reads all slots and reduces in rank order. One hop. Several small
//     calls of one batch share a slot.
//   - pull (pull.go): the verbs in which data has one reader or is not combined.
//     The readers copy or reduce from the slot or from the buffer.
//   - parts (parts.go): large AllReduce. Each rank reduces its own part from
//     everybody's buffers, in pieces, and the others fetch each piece while it
//     is still in a cache.
//
// Reductions always run in rank order, so the bits of a result depend neither
// on the way taken nor on the size of the pieces.
//
// The ranks are goroutines of one process. The board is plain memory without
// pointers, so that it can lie in a mapped segment as well; the one thing that
// is different there is how a rank reaches another's buffer (reach.go).
package shm

import _ "github.com/tutti-go/tutti/internal/platform" // needs what this package needs
