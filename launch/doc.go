// Package launch starts the ranks of a job on this host, monitors them, and ends all of
// them together. The command `tutti run` calls it.
//
// [Run] opens the job's store, or connects to the store of node 0. It starts the ranks
// with the environment variables that tutti.Join and PyTorch read, forwards their
// output, and returns a [Report]. When a rank fails, Run ends all ranks, unless the job
// is elastic (Config.Min). When all ranks have exited, Run kills every process that
// they started, including processes in other sessions.
//
// # Three processes
//
// A launcher that is killed cannot end its ranks. A command that must leave no process
// behind therefore consists of three processes, each the parent of the next. The first
// process calls [Guard]. The watchdog calls [Watchdog]. The leader calls Run with the
// [Lifeline] that it inherits. If any one or two of them are killed, the rest end every
// process that the ranks started. The watchdog has its own process name and session: a
// kill by name, by process group or by terminal reaches the other two processes, but
// not the watchdog.
//
// If all three are killed, the kernel kills the leader's direct children, which are the
// ranks. Processes that the ranks started keep running.
package launch
