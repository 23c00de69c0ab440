// Package shmem is the message lane between the processes of one host: a transport.Messenger over
// shared memory.
//
// Each rank has a part of the memory. It writes only its own part and reads the others. A part
// holds, for each other rank, a header and a ring of records, and for all of them a slab.
//
// A sender announces a message with a record in its ring for the receiver. The record contains the
// data of a small message. The data of a larger one is in a block of the sender's slab. Still larger
// data stays in the sender's buffer: the receiver reads it through its mapping of the same memory,
// or from the sender's process, or asks the sender to copy it through chunks of its slab, which is
// called a stream.
//
// The receiver counts in its header for the sender the records that it has consumed and the messages
// whose data it has taken. A message that is taken before an older one is reported by a record. A
// message is not reported if its receive was promised by a record; see record.ready.
// Records that find no room wait in memory of their process until a goroutine polls.
//
// No word of shared memory is trusted: a value that cannot be valid fails the rank that wrote it.
//
// docs/design/messages.md explains these decisions.
package shmem
