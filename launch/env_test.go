package launch

import (
	"slices"
	"testing"
)

// TestMergeEnv replaces, removes and adds variables. A value that ends in "=", as base64 text may,
// is not an empty value.
func TestMergeEnv(t *testing.T) {
	env := []string{"A=1", "B=2", lifelineName + "=3", watchdogName + "=4", "E="}
	got := mergeEnv(env, []string{"B=", "A=YQ==", "C=x"})
	if want := []string{"E=", "A=YQ==", "C=x"}; !slices.Equal(got, want) {
		t.Errorf("the environment is %q, want %q", got, want)
	}
}
