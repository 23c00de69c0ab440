// Package peers holds the drivers that time other libraries' collectives, as
// source text: bench/compare compiles what the machine has compilers and
// libraries for. They are written against the libraries' public interfaces.
//
// All drivers, and tutti's own rank in bench/compare, measure alike. For each
// size they run the operation on known values and check every element, run it
// for a quarter of the time budget to warm up and to learn how often it fits in
// the budget, time each iteration on every rank, and check once more.
//
// AllReduce runs back to back, in place, and an iteration lasts on each rank
// from one return to the next. Other operations would let a rank that waits for
// nobody run ahead, so each iteration begins with a barrier that is not timed,
// and lasts from the moment when the last rank has left that barrier to the
// moment when the last rank has returned: CLOCK_MONOTONIC is one clock for all
// processes of a host.
//
// Rank 0 prints one line for each size and rank:
//
//	R bytes rank iterations p50 p99 p99.9 min per_second
//
// with times in microseconds, and lines "I text" about the library itself.
package peers

import _ "embed"

// MPI is the driver for Open MPI and MPICH, in C. Its arguments are the
// operation, the sizes in bytes separated by commas, the budget in
// microseconds, and the number of iterations, 0 for what the budget allows.
//
//go:embed mpi.c
var MPI string

// Start is a program for Open MPI and MPICH, in C: one AllReduce, after which
// each rank prints "first" and CLOCK_MONOTONIC in nanoseconds. It has no
// arguments.
//
//go:embed start.c
var Start string

// Gloo is the driver for Gloo, in C++. Its arguments are those of MPI, then the
// rank, the number of ranks, and a folder for the rendezvous.
//
//go:embed gloo.cc
var Gloo string

// NCCL is the driver for NCCL, in C. Unlike the others it serves a program that
// asks, so that several jobs can be timed in turns: see bench/gputest, whose own
// ranks in Go speak the same. Its arguments are the rank and the number of ranks.
// Rank 0 prints "id" and the unique id, the others read that line; then each
// prints "ready". It answers the lines
//
//	burst N         N times 64 AllReduces of 1 KiB; the wait for them is not timed
//	ordered N       the same, each between events that order it with a compute stream
//	through N       the same, with the wait for them
//	whole BYTES N   N times one AllReduce and the wait for it
//	loop OP BYTES N N times a collective as tutti bench times it (TUTTI_BENCH_MEET
//	                names a file for its barriers)
//
// with "ns" and N numbers: nanoseconds for each. With the arguments
// "cycles", N and SECONDS, it makes, uses and ends up to N communicators of one rank,
// one in five of them given up half way, and prints "ns", how many there were, and
// used bytes of the device, descriptors and threads after the first ten and at the end.
//
//go:embed nccl.c
var NCCL string

// NCCLLoop is a part of NCCL, loop.c beside it.
//
//go:embed loop.c
var NCCLLoop string
