package value

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"reflect"
)

// MaxBytes bounds the encoding of one value, in bytes. No memory is allocated for a longer one that
// another rank announces.
const MaxBytes = 1 << 30

// The head of a message precedes the encoding of its value: the magic number, the fingerprint of the
// type, the length of the type's name, and the name.
const (
	magic     = "tutti.v1"
	headBytes = len(magic) + 8 + 1
	maxName   = 255 // longer names are cut
)

// errTooLong is the reason for a value whose encoding exceeds a limit.
var errTooLong = fmt.Errorf("its encoding exceeds %d bytes, the limit of package value", MaxBytes)

// A boundedBuffer collects an encoding. Its writes fail when the buffer would exceed limit.
type boundedBuffer struct {
	b     []byte
	limit int
}

func (w *boundedBuffer) Write(p []byte) (int, error) {
	if len(p) > w.limit-len(w.b) {
		return 0, errTooLong
	}
	w.b = append(w.b, p...)
	return len(p), nil
}

// encode appends the encoding of v to b. Nothing is the encoding of a nil pointer or interface.
// The result has at most limit bytes.
func encode[T any](b []byte, v *T, limit int) ([]byte, error) {
	if isNil(reflect.ValueOf(v).Elem()) {
		return b, nil
	}
	w := &boundedBuffer{b, limit}
	switch err := gob.NewEncoder(w).Encode(v); {
	case err == nil:
		return w.b, nil
	case errors.Is(err, errTooLong):
		return nil, fmt.Errorf("a value of type %s cannot be encoded: %w", typeName(reflect.TypeFor[T]()), err)
	default: // gob says what is wrong and not what to do
		return nil, fmt.Errorf("a value of type %s cannot be encoded: %w; "+
			"send exported fields without functions and channels, and call gob.Register on all ranks for types in interfaces", typeName(reflect.TypeFor[T]()), err)
	}
}

// isNil reports whether v is a nil pointer or interface, or leads to a nil pointer.
func isNil(v reflect.Value) bool {
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	return (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) && v.IsNil()
}

// decode returns the value of an encoding from a rank.
func decode[T any](b []byte, from int) (T, error) {
	var v, zero T
	if err := decodeInto(b, &v); err != nil {
		return zero, fmt.Errorf("the value of type %s from rank %d cannot be decoded: %w", typeName(reflect.TypeFor[T]()), from, err)
	}
	return v, nil
}

// decodeInto decodes b into a zero value.
func decodeInto[T any](b []byte, v *T) error {
	if len(b) == 0 {
		if k := reflect.TypeFor[T]().Kind(); k != reflect.Pointer && k != reflect.Interface {
			return errors.New("the encoding is empty")
		}
		return nil
	}
	r := bytes.NewReader(b)
	if err := gob.NewDecoder(r).Decode(v); err != nil {
		return err
	}
	if r.Len() > 0 {
		return fmt.Errorf("%d bytes follow the encoding", r.Len())
	}
	return nil
}

// cutName returns the name of a type as messages contain it.
func cutName(t reflect.Type) string {
	name := typeName(t)
	return name[:min(len(name), maxName)]
}

// appendHead appends the head of a message with a value of type t.
func appendHead(b []byte, t reflect.Type) []byte {
	name := cutName(t)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint64(b, fingerprint(t))
	b = append(b, byte(len(name)))
	return append(b, name...)
}

// parseHead returns the content of the head of a message, and the encoding that follows it. ok is
// false if the message has no valid head.
func parseHead(b []byte) (hash uint64, name string, body []byte, ok bool) {
	if len(b) < headBytes || string(b[:len(magic)]) != magic {
		return 0, "", nil, false
	}
	n := int(b[headBytes-1])
	if len(b) < headBytes+n {
		return 0, "", nil, false
	}
	return binary.LittleEndian.Uint64(b[len(magic):]), string(b[headBytes : headBytes+n]), b[headBytes+n:], true
}
