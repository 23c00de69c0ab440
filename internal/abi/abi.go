// Package abi describes what two ranks must have in common to understand each
// other: constants, tables, the layout of structs in shared memory. Each package
// that has any describes them in a function ABI; package job makes one hash of
// all descriptions, which ranks compare when they join.
package abi

import (
	"fmt"
	"reflect"
	"strings"
)

// Text is the description of a package: one line for each pair of a name and a
// value.
func Text(pkg string, pairs ...any) string {
	var b strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		fmt.Fprintf(&b, "%s.%v=%v\n", pkg, pairs[i], pairs[i+1])
	}
	return b.String()
}

// Struct describes how a struct lies in memory: its size, and of every field the
// name, the place, the kind and the tag.
func Struct[T any]() string { return describe(reflect.TypeFor[T]()) }

func describe(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct:
		var b strings.Builder
		fmt.Fprintf(&b, "{%d:", t.Size())
		for i := range t.NumField() {
			f := t.Field(i)
			fmt.Fprintf(&b, " %s@%d %s", f.Name, f.Offset, describe(f.Type))
			if f.Tag != "" {
				fmt.Fprintf(&b, " %q", f.Tag)
			}
		}
		return b.String() + "}"
	case reflect.Array:
		return fmt.Sprintf("[%d]%s", t.Len(), describe(t.Elem()))
	}
	return fmt.Sprintf("%s:%d", t.Kind(), t.Size())
}
