// Package mem is the transport between ranks of one process, in memory, for tests of all code
// written over [transport.Mesh]. Options set how many frames a connection buffers, down to none,
// and can break a connection at a chosen frame.
//
// Calls block only in the waiters passed to them. A waiter must park in the parking lot of its
// rank; see [Mesh.ParkingLot].
package mem
