// Package bench implements `tutti bench`: it measures collectives between the ranks
// of a job, checks their results, and reports them.
//
// A [Plan] says what to measure. [Measure] runs it on one rank. Rank 0 reports in
// [Event]s; ranks that are child processes pass them on as lines of JSON. A
// [Printer] writes a table, lines of JSON, or an HTML page.
//
// docs/guide/measuring.md says what the figures mean.
package bench
