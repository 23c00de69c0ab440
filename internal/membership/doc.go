// Package membership forms the groups of ranks of Comms, from processes or goroutines: the
// rendezvous in Join, and the generations that Shrink and Grow make.
//
// A generation is a group of ranks whose members never change. The generations that follow
// each other are a lineage. The ranks of a generation decide on the next one through the
// job's store (package agree), and then form it: each rank gets an engine of the new group.
//
// The package returns engines and data. It knows neither operations nor Comms: the root
// package ends the operations of one generation before it asks for the next. See
// docs/design/membership.md.
package membership
