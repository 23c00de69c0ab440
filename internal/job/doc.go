// Package job makes the groups of a job's ranks that are processes: it lets
// them find each other through package watch, finds out which of them share a
// host, and picks for every group the engine that its ranks can use.
package job
