// Package tuttitest tests programs under faults. It runs the ranks of a program in
// one process, in virtual time, over a simulated network on which ranks crash,
// stall, vanish and are cut off from each other.
//
// [Run] calls a function on every rank, as tutti.RunLocal does. The Comms have the
// full API and use the algorithms for real networks. A run depends only on its
// Options: a failure with one seed happens again with that seed, at the same
// message. [Explore] tries many seeds, with one fault each, of chosen
// kinds.
//
// Ranks run one at a time, each until it waits for other ranks in a call of its
// Comm. For virtual time and replay to work, a rank's function must follow these
// rules:
//   - It waits only in calls of its Comms. It uses no channel, lock or
//     sync.WaitGroup that depends on another rank or task, no select, and no
//     time.Sleep.
//   - It starts no goroutine that uses a Comm. clock.Go takes the place of the go
//     statement.
//   - It uses Sleep, Now and WithTimeout of package clock in place of the functions of
//     packages time and context. On real ranks they are those functions, so that
//     programs need not import this package. Other contexts derived from the context
//     of the rank are allowed.
//   - It draws random numbers from the seed, and does not depend on the order of a
//     map.
//
// A rank that crashes in the simulation stops at once. Its function unwinds as if
// it had panicked, so its deferred calls run, but these have no effect on other
// ranks.
//
// Simulated Comms support Shrink, Grow and Agree, with a store on a host of its own.
// Requests to the store count as messages. A partition separates the store from
// the ranks that the fault names. [Options.Newcomers] are processes that wait until
// the ranks call Grow.
//
// The simulated control channel, through which ranks exchange the causes of
// failures, is simpler than the real one. Which of two causes comes first can
// differ from a real job.
package tuttitest
