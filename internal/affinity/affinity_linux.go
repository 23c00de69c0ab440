package affinity

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Allowed returns the CPUs that the calling thread may use, or nil if the system does not report
// them.
func Allowed() (list []int) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	for core := range len(set) * 64 {
		if set.IsSet(core) {
			list = append(list, core)
		}
	}
	return list
}

// BindThread binds the calling thread, and threads and processes that it starts, to CPUs. A nil
// list changes nothing.
func BindThread(list []int) error { return bind(0, list) }

// Bind binds this process to CPUs. A nil list changes nothing. runtime.NumCPU keeps the value of
// the program's start.
func Bind(list []int) error {
	// Existing threads are bound one by one. Threads that they start later inherit the binding.
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("binding to cores: %w", err)
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := bind(id, list); err != nil {
			return fmt.Errorf("binding to cores: %w", err)
		}
	}
	return nil
}

// bind binds a thread, 0 for the calling one, to CPUs. A nil list changes nothing.
func bind(thread int, list []int) error {
	if list == nil {
		return nil
	}
	var set unix.CPUSet
	for _, core := range list {
		set.Set(core)
	}
	return unix.SchedSetaffinity(thread, &set)
}
