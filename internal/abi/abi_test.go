package abi

import (
	"sync/atomic"
	"testing"
)

func TestStruct(t *testing.T) {
	type inner struct{ A, B uint16 }
	type outer struct {
		N    int64
		List [3]inner
		Word atomic.Uint32
	}
	const want = "{24: N@0 int64:8 List@8 [3]{4: A@0 uint16:2 B@2 uint16:2} Word@20 {4: _@0 {0:} v@0 uint32:4}}"
	if got := Struct[outer](); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := Text("p", "a", 1, "b", []int{2, 3}), "p.a=1\np.b=[2 3]\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
