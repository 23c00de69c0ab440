// Package sim runs the ranks of a job in one process, in virtual time, over
// simulated links: the real algorithms of engine/network, whatever is written over
// them, and faults. A run depends on nothing but its options: the logs of two
// runs with the same seed have the same hash, so a failure replays exactly.
//
// Ranks are coroutines of which one runs at a time. It runs until it waits, and
// algorithms wait only in package wait, whose [wait.Scheduler] the simulator is. Of
// those that can run, a seeded choice goes next; when none can, time passes to
// the next event. Computing takes no time.
//
// What is simulated, and how it differs from the real thing:
//   - Links (link.go): latency with jitter, bandwidth, order, and a bound on
//     what is under way. A partition holds frames back, as TCP does; when it
//     lasts longer than Options.Silence the connections across it end.
//   - Processes (proc.go): they crash, vanish with their host, or stop.
//   - The control channel (channel.go): each process runs the state machine of
//     package overlay, as package watch does, over simulated connections. Two
//     things differ. A rank that reports a failure cannot wait for the decision on
//     which cause came first, because engine.Cause calls OnFail in a sync.Once. So
//     the lowest rank that can be reached decides at once (control.go). In package
//     watch, the decision takes some messages, or a few hundred milliseconds if a
//     lower rank does not answer. And the function that closes the last group of a
//     job does not wait until the other ranks know of the departure: the simulator
//     does that beside it.
//     Every rank has a host of its own. The Node asks its successor five times a
//     second of virtual time, so events never end, and ranks that hang are found
//     when the run's Limit has passed.
//   - Later generations (job.go): the root package's Shrink runs as it is. Each generation
//     is a job of its own, with connections and a control channel of its own, and
//     begins when all its ranks have said hello to its rank 0.
//   - The store (store.go): the root package's arbiter, reached over the network
//     from each rank. It never fails, but partitions and cut connections lie
//     between it and the ranks.
//
// A World and all that belongs to it is used by one goroutine, and by what that
// runs as its ranks.
package sim
