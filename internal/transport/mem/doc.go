// Package mem is the transport between ranks of one process, in memory. It is
// for tests of all that is written over [transport.Mesh]: it can be made to
// hold back as little as a real connection does, or nothing at all, and to
// lose a connection at a chosen frame.
//
// It blocks nowhere but in the waiters that it is given. These must park in
// the lots of the ranks they belong to: see [Mesh.Lot].
package mem
