package job

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tutti-go/tutti/internal/engine"
)

// An OptionError says that two ranks have different values of an option that must be equal on all
// ranks. All ranks return the same error. It matches engine.ErrMismatch.
type OptionError struct {
	Option string    // the name that users know
	Ranks  [2]int    // rank 0 and the first rank that differs
	Values [2]string // their values; empty: not set
}

// Error names the option, both ranks and their values.
func (e *OptionError) Error() string {
	text := func(v string) string {
		if v == "" {
			return "not set"
		}
		return v
	}
	return fmt.Sprintf("%s is %s on rank %d, and %s on rank %d; all ranks must have the same",
		e.Option, text(e.Values[0]), e.Ranks[0], text(e.Values[1]), e.Ranks[1])
}

// Is reports whether target is engine.ErrMismatch.
func (e *OptionError) Is(target error) bool { return target == engine.ErrMismatch }

// checkOptions compares the options of all ranks with those of rank 0. A difference would otherwise
// appear later, as operations that fail for no visible reason.
func checkOptions(peers []rankInfo) error {
	first := peers[0].options
	for r, p := range peers {
		names := maps.Clone(p.options)
		if names == nil {
			names = make(map[string]string)
		}
		maps.Copy(names, first)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if first[name] != p.options[name] {
				return &OptionError{Option: name, Ranks: [2]int{0, r}, Values: [2]string{first[name], p.options[name]}}
			}
		}
	}
	return nil
}
