package affinity

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Allowed lists the cores that the calling thread, and what it starts, may use; nil if
// the system does not say.
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

// BindThread keeps the calling thread, and what it starts, on some cores; nil means
// that nothing changes.
func BindThread(list []int) error { return bind(0, list) }

// Bind keeps this process on some cores; nil means that nothing changes. Go has looked
// at how many there are before, and so still knows those of the whole host.
func Bind(list []int) error {
	// Threads that are there already do not follow; those that they start later do.
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
