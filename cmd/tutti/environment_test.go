package main

import (
	"strings"
	"testing"
)

// TestWrongVariables sets variables that cannot be parsed: each command ends with exit code 2 and names the
// variable and its value, before it starts a rank.
func TestWrongVariables(t *testing.T) {
	for _, c := range []struct {
		variable string
		args     []string
	}{
		{"TUTTI_HOST_STAGING", []string{"bench", "-n", "2"}},
		{"TUTTI_KERNEL", []string{"bench", "-n", "2"}},
		{"TUTTI_HOST_STAGING", []string{"run", "-n", "2", "--", "true"}},
		{"TUTTI_NODES", []string{"run", "--", "true"}},
		{"TUTTI_LIFELINE", []string{"run", "--", "true"}},
	} {
		got := tuttiWith(t, []string{c.variable + "=nonsense"}, c.args...)
		if got.code != 2 || !strings.Contains(got.err, c.variable+` is "nonsense"`) || got.out != "" {
			t.Errorf("%s, %v: code %d, %s%s", c.variable, c.args, got.code, got.out, got.err)
		}
	}
}
