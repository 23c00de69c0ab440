// Package race reports memory accesses that the race detector cannot see: those of assembly and of
// bare system calls. Without the race detector its functions do nothing.
package race
