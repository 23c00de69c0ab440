// Package abi describes what two ranks must have in common to communicate: constants, tables,
// and the layout of structs in shared memory. Each package with such parts describes them in
// a function ABI. Package job hashes all descriptions, and ranks compare the hash when they
// join.
package abi

import (
	"fmt"
	"reflect"
	"strings"
)

// Text returns a package's description: one line for each pair of a name and a value.
func Text(pkg string, pairs ...any) string {
	var b strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		fmt.Fprintf(&b, "%s.%v=%v\n", pkg, pairs[i], pairs[i+1])
	}
	return b.String()
}

// Struct describes the memory layout of a struct: its size, and each field's name, offset,
// kind and tag.
func Struct[T any]() string { return describe(reflect.TypeFor[T]()) }

// describe describes a type's kind, size and parts.
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
