package affinity_test

import (
	"runtime"
	"slices"
	"testing"

	"github.com/tutti-go/tutti/internal/affinity"
)

// TestShare divides five CPUs among three ranks: each CPU goes to one rank. With
// more ranks than CPUs no rank gets a share.
func TestShare(t *testing.T) {
	cpus := []int{2, 3, 5, 8, 9}
	var all []int
	for r := range 3 {
		part := affinity.Share(cpus, 3, r)
		if len(part) == 0 {
			t.Error("a rank has no processor")
		}
		all = append(all, part...)
	}
	if !slices.Equal(all, cpus) {
		t.Error(all)
	}
	if affinity.Share(cpus, 6, 0) != nil {
		t.Error("six ranks on five processors are bound")
	}
}

// TestOversubscribed counts the CPUs that processes share.
func TestOversubscribed(t *testing.T) {
	for _, c := range []struct {
		has   int
		ranks [][]int
	}{
		{1, [][]int{{0}}},
		{2, [][]int{{0}, {17}}},
		{2, [][]int{{0, 1}, {0, 1}, {1}}},
		{3, [][]int{{200, 3}, {9}}},
		{runtime.NumCPU(), [][]int{{0}, nil}},
		{runtime.NumCPU(), nil},
	} {
		var masks [][]byte
		for _, list := range c.ranks {
			masks = append(masks, affinity.Mask(list))
		}
		if affinity.Oversubscribed(c.has, masks) || !affinity.Oversubscribed(c.has+1, masks) {
			t.Errorf("%v do not have %d cores", c.ranks, c.has)
		}
	}
}

// TestDisjoint checks whether any two processes share a CPU. An unknown mask counts
// as shared.
func TestDisjoint(t *testing.T) {
	for _, c := range []struct {
		apart bool
		ranks [][]int
	}{
		{true, [][]int{{0}, {17}}},
		{true, [][]int{{200, 3}, {9}, {8}}},
		{false, [][]int{{0, 1}, {1}}},
		{false, [][]int{{3}, {0}, {3}}},
		{false, [][]int{{0}, nil}},
		{false, nil},
	} {
		var masks [][]byte
		for _, list := range c.ranks {
			masks = append(masks, affinity.Mask(list))
		}
		if affinity.Disjoint(masks) != c.apart {
			t.Errorf("apart is not %v for %v", c.apart, c.ranks)
		}
	}
}

// TestBind binds this process and its thread to the CPUs that they have already.
func TestBind(t *testing.T) {
	all := affinity.Allowed()
	for _, bind := range []func([]int) error{affinity.Bind, affinity.BindThread} {
		if err := bind(all); err != nil {
			t.Skip("not allowed here:", err)
		}
		if err := bind(nil); err != nil || !slices.Equal(affinity.Allowed(), all) {
			t.Errorf("%v, %v, not %v", err, affinity.Allowed(), all)
		}
	}
}
