package bench

import "golang.org/x/sys/unix"

// allowedCores lists the cores that this process may use.
func allowedCores() (list []int) {
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
