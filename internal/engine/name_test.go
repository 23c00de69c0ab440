package engine

import (
	"slices"
	"testing"
)

// TestGroupName makes a long chain of groups, and a sibling of each. The names must differ, be
// short, and sort in the order of creation.
func TestGroupName(t *testing.T) {
	name, names := "world", []string{"world"}
	for i := range 1000 {
		sister := GroupName(name, uint64(i), 1)
		name = GroupName(name, uint64(i), 0)
		if slices.Contains(names, name) || slices.Contains(names, sister) || name == sister {
			t.Fatalf("group %d is called %q, its sister %q", i, name, sister)
		}
		if last := names[len(names)-1]; name < last || sister < last {
			t.Fatalf("group %d, %q, or its sister %q is before what it is made of, %q", i, name, sister, last)
		}
		if len(name) > mostName || len(sister) > mostName {
			t.Fatalf("group %d is called %q, its sister %q", i, name, sister)
		}
		names = append(names, name)
	}
	if name := GroupName("world", 102, 3); name != "world/102.3" {
		t.Error(name)
	}
}
