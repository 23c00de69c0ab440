// Package bench is what `tutti bench` does: it measures collectives between the
// ranks of a job, checks their results, and shows them.
//
// A [Plan] says what to measure. [Measure] does it on one rank; rank 0 tells of it
// in [Event]s, which travel as lines of JSON where ranks are processes that [Start]
// has started. A [Screen] makes a table, lines of JSON or a page of them.
//
// docs/guide/measuring.md says what the figures mean.
package bench
