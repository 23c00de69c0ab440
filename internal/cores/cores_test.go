package cores_test

import (
	"slices"
	"testing"

	"github.com/tutti-go/tutti/internal/cores"
)

func TestShare(t *testing.T) {
	cpus := []int{2, 3, 5, 8, 9}
	var all []int
	for r := range 3 {
		part := cores.Share(cpus, 3, r)
		if len(part) == 0 {
			t.Error("a rank has no processor")
		}
		all = append(all, part...)
	}
	if !slices.Equal(all, cpus) {
		t.Error(all)
	}
	if cores.Share(cpus, 6, 0) != nil {
		t.Error("six ranks on five processors are bound")
	}
}

// TestBind binds this process to what it has already, and its thread.
func TestBind(t *testing.T) {
	all := cores.Allowed()
	for _, bind := range []func([]int) error{cores.Bind, cores.BindThread} {
		if err := bind(all); err != nil {
			t.Skip("not allowed here:", err)
		}
		if err := bind(nil); err != nil || !slices.Equal(cores.Allowed(), all) {
			t.Errorf("%v, %v, not %v", err, cores.Allowed(), all)
		}
	}
}
