// Package flight is the flight recorder: it records a rank's last calls, their
// times and their results in ring buffers, which are always written and rarely
// read.
//
// A record must cost almost nothing compared with the smallest operation. The
// recorder therefore does not write operations that are similar to the previous
// one, as in a loop: a run of them is one record, and an operation's number says
// to which run it belongs. The goroutine that runs the operation writes the record
// with plain stores, without allocation and without a lock. Reading the clock
// twice would cost more than all of that, so the recorder takes times only where
// they cost little or are informative:
//
//   - of operations of 64 KiB and more;
//   - of operations that waited for another rank for more than a moment: the wait
//     reads the clock anyway (see wait.FirstWait), so an operation that hangs has a
//     time, and an operation that has waited has an end;
//   - of one in 64 of the others, and of all queued operations (Batch);
//   - of messages.
//
// All other operations have only their number, and so their order among those
// with times.
package flight
