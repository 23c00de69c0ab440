// Package value passes Go values of any type between ranks: structs, maps, slices, strings and
// pointers to them.
//
//	counts, m, err := value.Recv[map[string]int](ctx, c, tutti.AnyRank, tag) // on rank 0
//	err := value.Send(ctx, c, 0, counts, tag)                               // on the workers
//
// The functions are for control data and results of moderate size. Numbers in slices travel many
// times faster as a tutti.Buffer.
//
// # Encoding
//
// Values are encoded by [encoding/gob], with its rules. Unexported fields and fields that hold
// functions or channels are not sent. A value in an interface needs a type that every rank has
// registered with [gob.Register]. Types may be recursive, but the data must not contain itself.
// The received value shares no memory with the sent one. A nil map arrives as an empty one and an
// empty slice as nil.
//
// Sender and receiver use the same type. Types are the same if their names agree, apart from the
// path of their package, and their structure agrees: the kinds, and the names and types of the
// fields that gob sends. Of a type with a GobEncode or MarshalBinary method only the name counts.
// To pass an interface, name it as type argument of Send as well: Send[Shape](...).
//
// # Errors
//
// An error of this package is a *tutti.Error. These leave the Comm healthy, and the next call
// works:
//   - A value that cannot be encoded, or whose encoding exceeds [MaxBytes], is tutti.ErrInvalid.
//     Send then sends nothing. A collective fails on all ranks, with the rank that could not encode
//     its value and the text of the encoder's error.
//   - Different types are tutti.ErrMismatch, with both types and both ranks: on the receiver in Recv,
//     on all ranks in a collective.
//   - A value that cannot be decoded, for example because its type is not registered, is
//     tutti.ErrInvalid on the rank that cannot decode it. The other ranks do not know it, except in
//     AllReduce, where rank 0 decodes all values.
//
// A message of [Send] that is received as a buffer, and a buffer that is received as a value, are
// tutti.ErrMismatch and poison the Comm, as two element types that differ do.
//
// Any other error is one of the Comm's own operations, and has poisoned the Comm if theirs does.
//
// # Order
//
// Broadcast, AllGather and AllReduce are collective: all ranks call them, in the same order as other
// collectives of the Comm. Each makes several calls of the Comm, so no other goroutine of the rank
// may start a collective on the same Comm meanwhile. Send and Recv are outside of that order.
package value
