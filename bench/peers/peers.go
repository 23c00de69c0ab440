// Package peers holds the drivers that measure other libraries' collectives and
// messages, as source text. bench/compare compiles those for which the machine has
// compilers and libraries. They use the libraries' public interfaces.
//
// All drivers, and tutti's own rank in bench/compare, measure in the same way. For
// each size they run the operation on known values and check every element. They
// warm up for a quarter of the time budget, which also tells how many iterations fit
// into the budget. They time each iteration on every rank, and check once more.
//
// AllReduce runs back to back, in place. An iteration lasts on each rank from one
// return to the next.
//
// Messages run back to back too, between the ranks r and r^1 of each pair. An
// iteration of small messages is 16 exchanges, because reading the clock would be a
// tenth of one. The even ranks' results are combined into one for all pairs.
//
// In other operations, a rank that waits for no other could run ahead. Each iteration
// therefore begins with a barrier that is not timed. It lasts from the moment when the
// last rank has left that barrier to the moment when the last rank has returned. All
// processes of a host share CLOCK_MONOTONIC.
//
// Rank 0 prints one line for each size and rank, or for each size:
//
//	R bytes rank iterations p50 p99 p99.9 min per_second
//
// with times in microseconds, and lines "I text" about the library itself.
package peers

import _ "embed"

// MPI is the driver for Open MPI and MPICH, in C. Its arguments are the operation,
// the sizes in bytes separated by commas, the budget in microseconds, and the
// number of iterations, 0 for as many as the budget allows.
//
//go:embed mpi.c
var MPI string

// Start is a program for Open MPI and MPICH, in C. It runs one AllReduce, after
// which each rank prints "first" and CLOCK_MONOTONIC in nanoseconds. It has no
// arguments.
//
//go:embed start.c
var Start string

// Gloo is the driver for Gloo, in C++. Its arguments are those of MPI, then the
// rank, the number of ranks, and a folder for the rendezvous.
//
//go:embed gloo.cc
var Gloo string

// NCCL is the driver for NCCL, in C. Unlike the others it answers requests of
// another program, so that several jobs can be timed in turns: see bench/gputest,
// whose own ranks in Go have the same protocol. Its arguments are the rank and the
// number of ranks. Rank 0 prints "id" and the unique id; the other ranks read that
// line. Then each rank prints "ready". It answers the lines
//
//	burst N         N times 64 AllReduces of 1 KiB; the wait for them is not timed
//	ordered N       the same, each between events that order it with a compute stream
//	through N       the same, with the wait for them
//	whole BYTES N   N times one AllReduce and the wait for it
//	loop OP BYTES N N times a collective as tutti bench times it (TUTTI_BENCH_MEET
//	                names a file for its barriers)
//
// with "ns" and N numbers: nanoseconds for each. With the arguments "cycles", N and
// SECONDS, it makes, uses and destroys up to N communicators of one rank, one in five
// of them aborted during its creation. It prints "ns", the number of communicators,
// and the used device memory in bytes, descriptors and threads, after the first ten
// and at the end.
//
//go:embed nccl.c
var NCCL string

// NCCLLoop is loop.c, which NCCL includes.
//
//go:embed loop.c
var NCCLLoop string
