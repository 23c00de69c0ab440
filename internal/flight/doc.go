// Package flight is the flight recorder: what a rank has called last, when, and
// how that ended, in rings of memory that are always written and seldom read.
//
// Writing must cost next to nothing beside an operation of a third of a
// microsecond. So operations that look like the one before them, which is the
// rule in a loop, are not written at all: a run is one record, and an operation's
// number says which run it belongs to. Records are written with plain stores by
// the goroutine whose turn it is; nothing is allocated and nothing locked. Two
// looks at the clock would cost more than all the rest, so times are taken only
// where they cost little or tell much:
//
//   - of operations of 64 KiB and more;
//   - of operations that had to wait for another rank for more than about a
//     microsecond: the clock is read in that wait anyway (see wait.FirstWait), so that
//     whatever hangs has a time, and what has waited has an end;
//   - of one in 64 of the others, and of all that was queued (Batch);
//   - of messages.
//
// The rest have their number, and so their place between two that have times.
package flight
