// Package enginetest is the conformance suite: an engine is done when it
// passes.
//
// A case is a body that every rank of a group runs. Bodies share no Go
// variables: inputs follow from a seed and the rank, so that each rank works
// out everybody's inputs and the expected results by itself. The same bodies
// can therefore run as goroutines, as Run does it, or with one process per
// rank.
//
// What is expected of an engine, beyond the right bits:
//
//   - It writes nothing but the destination: not the memory around it, not a
//     source, in place not the shares of others, not the calls.
//   - When an operation has returned, in whatever way, the memory is the
//     caller's again. Every operation of the suite is followed by writes to all
//     its memory, which spoil the result of a rank that still reads, and which
//     the race detector sees.
//   - A rank that has finished may Close at once. What it did stands.
//   - When something goes wrong, every rank gets the same cause.
package enginetest
