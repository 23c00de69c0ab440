// Package enginetest is the conformance suite that every engine must pass.
//
// A case is a body that every rank of a group runs. Bodies share no Go
// variables. Inputs follow from a seed and the rank, so each rank computes the
// inputs of all ranks and the expected results by itself. The same bodies can
// therefore run as goroutines, as Run does, or with one process per rank.
//
// Beyond correct results, an engine must meet these requirements:
//
//   - It writes only the destination: not the memory around it, not a source,
//     not the other ranks' shares of a call in place, not the calls.
//   - When an operation has returned, also with an error, the memory belongs to
//     the caller again. After every operation the suite overwrites all its
//     memory. A rank that still reads it gets a wrong result, and the race
//     detector reports it.
//   - A rank whose operation has returned may Close at once. Data that it has
//     sent still arrives.
//   - When an operation fails, every rank gets the same cause.
package enginetest
