// Package tuttitest tests programs under faults: it runs their ranks in one
// process, in virtual time, over a simulated network on which ranks crash,
// stall, vanish and are cut off from each other.
//
// [Run] gives a function to every rank, as tutti.RunLocal does, with Comms that
// do all that others do, by the algorithms that real networks are used with. A
// run depends on nothing but its Options: what fails with a seed fails again
// with that seed, at the same message. [Explore] tries many seeds, with a fault
// each.
//
// Ranks run one at a time, each until it waits for others in a call of its Comm.
// So that virtual time and the replay hold, a rank's function
//   - waits for nothing but its Comms: no channel, lock or sync.WaitGroup that
//     another rank or task must do something about, no select, no time.Sleep;
//   - starts no goroutines that use a Comm: [Go] does what go does;
//   - uses [Sleep], [Now] and [WithTimeout] where it would use those of packages
//     time and context. Other contexts made of the one it is given are fine;
//   - draws random numbers from the seed, and does not depend on the order of a
//     map.
//
// A rank that crashes in the simulation runs no further: its function unwinds as
// if it had panicked, so that its deferred calls run; what they do reaches
// nobody.
//
// Simulated Comms shrink and agree, too, with a store as arbiter. It stands on a
// host of its own: requests to it count as messages, and a partition lies between
// it and the ranks that are named. Grow is not simulated.
//
// The simulator's model of the control channel, by which ranks tell each other
// why something failed, is a simple one. Which of two causes comes first can
// differ from a real job's.
package tuttitest
