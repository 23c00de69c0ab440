package value

import (
	"encoding"
	"encoding/gob"
	"hash/fnv"
	"reflect"
	"strconv"
	"strings"
)

// fingerprint returns a hash of a type's description. It is the same in all processes of the job.
func fingerprint(t reflect.Type) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(describe(t))) // never fails
	return h.Sum64()
}

// describe returns a text that is equal for types that are the same: see the package comment.
func describe(t reflect.Type) string {
	d := description{seen: make(map[reflect.Type]int)}
	d.add(t)
	return d.text.String()
}

// A description is the description of a type in the making.
type description struct {
	text strings.Builder
	seen map[reflect.Type]int // the named types, with their numbers
}

func (d *description) add(t reflect.Type) {
	if t.PkgPath() != "" {
		if n, ok := d.seen[t]; ok {
			d.text.WriteString("#" + strconv.Itoa(n))
			return
		}
		d.seen[t] = len(d.seen)
		d.text.WriteString(typeName(t) + " ")
	}
	if opaque(t) {
		d.text.WriteString("encoded")
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		d.text.WriteString("*")
		d.add(t.Elem())
	case reflect.Slice:
		d.text.WriteString("[]")
		d.add(t.Elem())
	case reflect.Array:
		d.text.WriteString("[" + strconv.Itoa(t.Len()) + "]")
		d.add(t.Elem())
	case reflect.Map:
		d.text.WriteString("map[")
		d.add(t.Key())
		d.text.WriteString("]")
		d.add(t.Elem())
	case reflect.Struct:
		d.addFields(t)
	case reflect.Interface:
		d.text.WriteString(typeName(t))
	default:
		d.text.WriteString(t.Kind().String())
	}
}

func (d *description) addFields(t reflect.Type) {
	d.text.WriteString("struct{")
	for i := range t.NumField() {
		if f := t.Field(i); sent(&f) {
			d.text.WriteString(f.Name + " ")
			d.add(f.Type)
			d.text.WriteString(";")
		}
	}
	d.text.WriteString("}")
}

// sent reports whether gob sends a field.
func sent(f *reflect.StructField) bool {
	t := f.Type
	for t.Kind() == reflect.Pointer && t.Name() == "" {
		t = t.Elem()
	}
	return f.IsExported() && t.Kind() != reflect.Chan && t.Kind() != reflect.Func
}

var (
	gobEncoder    = reflect.TypeFor[gob.GobEncoder]()
	binaryEncoder = reflect.TypeFor[encoding.BinaryMarshaler]()
)

// opaque reports whether a type encodes itself.
func opaque(t reflect.Type) bool {
	if t.Kind() == reflect.Interface {
		return false
	}
	p := reflect.PointerTo(t)
	return t.Implements(gobEncoder) || t.Implements(binaryEncoder) || p.Implements(gobEncoder) || p.Implements(binaryEncoder)
}

// typeName returns the name of a type without the paths of packages, which differ between a
// command and its test. A type argument contains such paths.
func typeName(t reflect.Type) string {
	name := t.String()
	if !strings.Contains(name, "/") {
		return name
	}
	var short strings.Builder
	for name != "" {
		end := strings.IndexAny(name, "[],*{}() ;")
		if end < 0 {
			end = len(name) - 1
		}
		part := name[:end+1]
		short.WriteString(part[strings.LastIndex(part, "/")+1:])
		name = name[end+1:]
	}
	return short.String()
}
