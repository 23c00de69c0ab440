package main

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// bind keeps this process on one core, as mpirun does with its ranks when
// there is a core for each. With fewer cores nobody is bound.
func bind(rank, ranks int) error {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return fmt.Errorf("binding to a core: %w", err)
	}
	if ranks > may.Count() {
		return nil
	}
	var own unix.CPUSet
	for cpu, seen := 0, 0; seen <= rank; cpu++ {
		if may.IsSet(cpu) {
			if seen == rank {
				own.Set(cpu)
			}
			seen++
		}
	}
	// Threads that are there already do not follow; new ones do.
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("binding to a core: %w", err)
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(id, &own); err != nil {
			return fmt.Errorf("binding to a core: %w", err)
		}
	}
	return nil
}
