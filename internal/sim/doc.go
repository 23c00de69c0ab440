// Package sim runs the ranks of a job in one process, in virtual time, over
// simulated links: the real algorithms of engine/wire, whatever is written over
// them, and faults. A run depends on nothing but its options: the logs of two
// runs with the same seed have the same hash, so a failure replays exactly.
//
// Ranks are coroutines of which one runs at a time. It runs until it waits, and
// algorithms wait only in package wait, whose [wait.Host] the simulator is. Of
// those that can run, a seeded choice goes next; when none can, time passes to
// the next event. Computing takes no time.
//
// What is simulated, and how it differs from the real thing:
//   - Links (link.go): latency with jitter, bandwidth, order, and a bound on
//     what is under way. A partition holds frames back, as TCP does; when it
//     lasts longer than Options.Silence the connections across it end.
//   - Processes (proc.go): they crash, vanish with their host, or stop.
//   - The control channel (control.go): that of package watch in a simple form,
//     because watch has goroutines and sockets. It is a star around rank 0, with
//     the same rules, and causes travel as watch's; but rank 0's verdict on which
//     cause came first takes no time where rank 0 can be reached, and the welcome
//     and the goodbye of the first job are left out.
//   - Later epochs (job.go): the root package's Shrink runs as it is. Each epoch
//     is a job of its own, with connections and a control channel of its own, and
//     begins when all its ranks have said hello to its rank 0.
//   - The store (store.go): the root package's arbiter, reached over the network
//     from each rank. It never fails, but partitions and cut connections lie
//     between it and the ranks.
//
// A World and all that belongs to it is used by one goroutine, and by what that
// runs as its ranks.
package sim
