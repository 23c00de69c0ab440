// Package envvar parses environment variables. An unset variable and an empty one are the same. A value
// that cannot be parsed is an error, which names the variable and the value.
package envvar

import (
	"fmt"
	"strconv"
)

// Variables that ranks read; see docs/guide/environment.md. Kernel holds a name, the others are switches.
const (
	Kernel       = "TUTTI_KERNEL"
	HostStaging  = "TUTTI_HOST_STAGING"
	Late         = "TUTTI_LATE"
	NoEncryption = "TUTTI_NO_ENCRYPTION"
)

// Bool parses a switch as strconv.ParseBool does. It is false if the variable is not set.
func Bool(getenv func(string) string, name string) (bool, error) {
	text := getenv(name)
	if text == "" {
		return false, nil
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%s is %q, neither true (1) nor false (0)", name, text)
	}
	return on, nil
}

// Int parses a number. It is otherwise if the variable is not set.
func Int(getenv func(string) string, name string, otherwise int) (int, error) {
	text := getenv(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%s is %q, not a number", name, text)
	}
	return n, nil
}

// CheckKernel returns an error if the value of Kernel is not the name of a path of package kernel.
func CheckKernel(getenv func(string) string) error {
	switch name := getenv(Kernel); name {
	case "", "generic", "avx2", "neon":
		return nil
	default:
		return fmt.Errorf("%s is %q; use generic, avx2 or neon", Kernel, name)
	}
}

// Check returns an error if one of the variables above cannot be parsed. It is for commands that start
// ranks, because every rank would return that error.
func Check(getenv func(string) string) error {
	for _, name := range []string{HostStaging, Late, NoEncryption} {
		if _, err := Bool(getenv, name); err != nil {
			return err
		}
	}
	return CheckKernel(getenv)
}
