// Package sim runs the ranks of a job in one process, in virtual time, over
// simulated links. It runs the real algorithms of engine/network and everything
// above them, and injects faults. A run depends only on its options: the logs of
// two runs with the same seed have the same hash, so a failure can be replayed.
//
// Ranks are coroutines. One runs at a time, until it waits. Algorithms wait only
// in package wait, and the simulator implements [wait.Scheduler]. A seeded choice
// selects the next coroutine among those that are ready. When none is ready, time
// advances to the next event. Computation takes no virtual time.
//
// What is simulated, and how it differs from a real job:
//   - Links (network.go): latency with jitter, bandwidth, order, and a bound on
//     the frames in transit. A partition holds frames back, as TCP does. When it
//     lasts longer than Options.HostTimeout, the connections across it end.
//   - Processes (proc.go): they crash, vanish with their host, or stop. Some are
//     newcomers, which are in no job until the ranks admit them. The run ends when
//     only newcomers that wait for admission are left, as a launcher ends them.
//   - The control channel (controllink.go): each process runs the state machine of
//     package overlay, as package control does, over simulated connections. Two
//     things differ. First, a rank that reports a failure cannot wait for the
//     decision on the first cause, because engine.Cause calls OnFail in a
//     sync.Once. The lowest rank that can be reached therefore decides at once
//     (control.go). In package control the decision takes some messages, or a few
//     hundred milliseconds if a lower rank does not answer. Second, the function
//     that closes the last group of a job does not wait until the other ranks know
//     of the departure; the simulator does that in the background.
//     Every rank has a host of its own. The Node probes its successor periodically,
//     so events never run out. Ranks that hang are detected when the run's Limit
//     has passed.
//   - Later generations (job.go): the real Shrink and Grow run. Each generation is a
//     job of its own, with its own connections and control channel. It begins when
//     all its ranks have joined at its rank 0. A rank does not wait in Grow until its
//     departure from the old job is known; that happens in the background.
//   - The store (store.go): each rank reaches it over the network. It never fails,
//     but partitions and cut connections lie between it and the ranks.
//
// A World and everything that belongs to it is used by one goroutine and the
// coroutines that it runs.
package sim
