//go:build ignore

// One rank of an MPI job that runs one AllReduce and prints when it completed; see
// peers.go. The line above keeps the Go tool from compiling this file.

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

int main(int argc, char **argv) {
  int rank, ranks, sum;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  if (sum != ranks * (ranks - 1) / 2) MPI_Abort(MPI_COMM_WORLD, 1);
  printf("first %lld\n", (long long)t.tv_sec * 1000000000 + t.tv_nsec);
  MPI_Finalize();
  return 0;
}
