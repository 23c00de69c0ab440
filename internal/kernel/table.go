package kernel

import (
	"os"
	"sync"
	"sync/atomic"

	"github.com/tutti-go/tutti/internal/envvar"
)

type (
	reduceFunc   func(dst, a, b *byte, n int)
	scaleFunc    func(dst, a *byte, n int, x float64)
	scaleAddFunc func(dst, a, b *byte, n int, x float64)
)

// A table is one path: a function for every type and operation. A vector path starts as a copy
// of the generic one and replaces the functions that it does better.
type table struct {
	path     string
	reduce   [NumDTypes + 1][numOps + 1]reduceFunc
	scale    [NumDTypes + 1]scaleFunc
	scaleAdd [NumDTypes + 1]scaleAddFunc
}

// chosen is the table in use, nil until the first call. Tests store into it to
// run other paths.
var chosen atomic.Pointer[table]

// tables lists the paths that this processor can run, the best one last.
var tables = sync.OnceValue(func() []*table {
	generic := genericTable()
	return append([]*table{generic}, vectorTables(generic)...)
})

func active() *table {
	if t := chosen.Load(); t != nil {
		return t
	}
	return choose()
}

func choose() *table {
	t := pick(tables(), os.Getenv(envvar.Kernel))
	chosen.CompareAndSwap(nil, t)
	return t
}

// pick returns the table called name, or the best one.
func pick(tables []*table, name string) *table {
	for _, t := range tables {
		if t.path == name {
			return t
		}
	}
	return tables[len(tables)-1]
}
