// Package launch starts the ranks of a job on this host, watches them, and ends
// all of them together. It is what `tutti run` calls.
//
// [Run] hosts the job's store, or finds it on another host, starts the ranks
// with the environment by which tutti.Join and PyTorch find their place, passes
// on their output, and returns a [Report] of how it ended. When one rank fails,
// all are ended, unless the job is elastic (Config.Min); when all have ended, so
// has every process that they started, also those that have left their session.
//
// # Two processes
//
// A launcher that is killed can end nobody. So a command that must leave
// nothing behind is two processes, each of which ends everything if the other
// one is gone: the first calls [Guard], which starts the second, and that one
// calls Run with the [Lifeline] that Guard has given it.
package launch
