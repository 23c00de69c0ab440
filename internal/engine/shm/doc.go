// Package shm is the engine for ranks that can read each other's memory: the
// goroutines of one process, or the processes of one host.
//
// Each rank has a board: a few words and slots that it alone writes and all
// other ranks read. The boards of processes lie in mapped segments. A rank
// announces an operation by writing its fingerprint into the next slot. It adds
// its data if that is small. The other ranks copy or reduce what they need from
// the slot, or from the place that the slot names. A rank never writes the
// memory of another rank.
//
// Calls that fit into slots take one of two ways, in both kinds of groups:
//
//   - small (small.go): every rank reads all slots and reduces in rank order, in
//     one hop. Several small calls of a Batch share a slot.
//   - pull (pull.go): the ranks that need data of another rank copy or reduce it.
//     Between goroutines this way also serves large data of every verb but
//     AllReduce: the readers use the announcing rank's buffers.
//
// A large AllReduce between goroutines is divided into parts
// (allreduceparts.go). Each rank reduces its own part from all buffers, piece by
// piece. The other ranks fetch each piece while it is in a cache.
//
// A Scan or ExScan whose data does not fit into slots goes along the ranks as a
// chain (scan.go). Each rank combines the pieces of the rank before it with one
// more source, between goroutines from that rank's buffers, between processes
// from its windows.
//
// Other large data between processes takes one of three ways, chosen for each source:
//
//   - Windows (windows.go, allreducewindows.go): the source goes through a ring
//     of windows in the rank's segment. One window is filled while the other
//     ranks empty those before it.
//   - Regions (region.go): memory of Alloc is mapped by all ranks, which read it
//     in place.
//   - Process reads (vmread.go): the reader copies from the memory of the other
//     process with one system call. If the system refuses, the owner of the
//     memory copies it for the reader (serve.go).
//
// Reductions run in rank order in all of them. The bits of a result depend
// neither on the way nor on the size of the pieces.
//
// Messages go through a lane: package mem between goroutines, package shmem between
// processes (messages.go).
//
// docs/design/shm.md and messages.md explain these decisions.
package shm

import _ "github.com/tutti-go/tutti/internal/platform" // needs what this package needs
