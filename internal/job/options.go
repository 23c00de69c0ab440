package job

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tutti-go/tutti/internal/engine"
)

// A DifferError says that two ranks were given different options that all must
// be given alike. All ranks find the same one. It matches engine.ErrMismatch.
type OptionError struct {
	Option string    // as users call it
	Ranks  [2]int    // the first that differ
	Values [2]string // what they were given; "": nothing
}

// Error names the option and both ranks.
func (e *OptionError) Error() string {
	said := func(v string) string {
		if v == "" {
			return "not set"
		}
		return v
	}
	return fmt.Sprintf("%s is %s on rank %d, and %s on rank %d; all ranks must have the same",
		e.Option, said(e.Values[0]), e.Ranks[0], said(e.Values[1]), e.Ranks[1])
}

// Is reports whether target is engine.ErrMismatch.
func (e *OptionError) Is(target error) bool { return target == engine.ErrMismatch }

// alike compares what ranks were given with what rank 0 was. What differs would
// otherwise show later, as operations that go wrong for no visible reason.
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
