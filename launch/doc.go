// Package launch starts the ranks of a job on this host, watches them, and ends
// all of them together. It is what `tutti run` calls.
//
// [Run] hosts the job's store, or finds it on another host, starts the ranks
// with the environment by which tutti.Join and PyTorch find their place, passes
// on their output, and returns a [Report] of how it ended. When one rank fails,
// all are ended, unless the job is elastic (Config.Min); when all have ended, so
// has every process that they started, also those that have left their session.
//
// # Three processes
//
// A launcher that is killed ends no rank. So a command that must leave nothing
// behind is three processes, each the parent of the next: the first one, which
// calls [Guard]; the watchdog, which calls [Watchdog]; and the leader, which calls
// Run with the [Lifeline] that it was given. If one or two of them are killed, at
// whatever time, the others end every process that ranks have started. The watchdog
// has a name and a session of its own, so that a kill by name, by process group or
// by terminal, which reaches the others together, does not reach it.
//
// If all three are killed, the system kills the processes that the leader has
// started itself, which are the ranks. Processes that those have started go on.
package launch
