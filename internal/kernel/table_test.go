package kernel

import "testing"

func TestTablesAreComplete(t *testing.T) {
	for _, table := range tables() {
		for dt := Int8; dt.Valid(); dt++ {
			for op := Sum; int(op) <= numOps; op++ {
				if (table.reduce[dt][op] != nil) != op.Takes(dt) {
					t.Errorf("%s: %v takes %v: %v", table.path, op, dt, op.Takes(dt))
				}
			}
			if table.scale[dt] == nil || table.scaleAdd[dt] == nil {
				t.Errorf("%s lacks a function for %v", table.path, dt)
			}
		}
	}
}

func TestPick(t *testing.T) {
	list := []*table{{path: "generic"}, {path: "avx2"}, {path: "avx512"}}
	for name, want := range map[string]string{
		"": "avx512", "generic": "generic", "avx2": "avx2", "avx512": "avx512", "neon": "avx512", "typo": "avx512",
	} {
		if got := pick(list, name).path; got != want {
			t.Errorf("%q picks %s, want %s", name, got, want)
		}
	}
}

// TestNames checks the names and sizes of all types, and that other numbers are no
// types.
func TestNames(t *testing.T) {
	sizes := map[string]int{
		"int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
		"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int16": 2, "uint16": 2,
	}
	for dt := Int8; dt.Valid(); dt++ {
		if size, ok := sizes[dt.String()]; !ok || size != dt.Size() {
			t.Errorf("%v has size %d", dt, dt.Size())
		}
		delete(sizes, dt.String())
	}
	if len(sizes) != 0 {
		t.Errorf("missing types: %v", sizes)
	}
	for _, dt := range []DType{0, DType(NumDTypes + 1), 255} {
		if dt.Valid() || dt.IsFloat() || dt.Size() != 0 {
			t.Errorf("%d is taken for a type", dt)
		}
	}
	if Sum.String() != "sum" || Xor.String() != "xor" || Op(numOps+1).String() != "unknown" {
		t.Error("wrong names of operations")
	}
}
