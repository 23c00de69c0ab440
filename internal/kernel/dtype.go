package kernel

// DType is an element type. The zero value is not a type.
type DType uint8

// The element types.
const (
	Int8 DType = 1 + iota
	Uint8
	Int32
	Uint32
	Int64
	Uint64
	Float16
	BFloat16
	Float32
	Float64
	Int16
	Uint16
)

// NumDTypes is the number of element types; they are numbered from 1.
const NumDTypes = int(Uint16)

// Note is the type of the words that engines exchange instead of data that is elsewhere. No
// user memory has this type, so a mismatch of a note with user data is detected.
const Note DType = 0x80

// Value is the type of the bytes of a message of package value. Only messages have it.
const Value DType = 0x81

var dtypes = [NumDTypes + 1]struct {
	name string
	size int
}{
	{"none", 0},
	Int8:     {"int8", 1},
	Uint8:    {"uint8", 1},
	Int32:    {"int32", 4},
	Uint32:   {"uint32", 4},
	Int64:    {"int64", 8},
	Uint64:   {"uint64", 8},
	Float16:  {"float16", 2},
	BFloat16: {"bfloat16", 2},
	Float32:  {"float32", 4},
	Float64:  {"float64", 8},
	Int16:    {"int16", 2},
	Uint16:   {"uint16", 2},
}

// Size returns the size of an element in bytes, 0 if t is not a type.
func (t DType) Size() int {
	if int(t) < len(dtypes) {
		return dtypes[t].size
	}
	switch t {
	case Note:
		return 8
	case Value:
		return 1
	}
	return 0
}

// String returns the name of t in lower case, such as "bfloat16".
func (t DType) String() string {
	if int(t) < len(dtypes) {
		return dtypes[t].name
	}
	switch t {
	case Note:
		return "note of device memory"
	case Value:
		return "a value of package value"
	}
	return "unknown"
}

// Valid reports whether t is one of the element types.
func (t DType) Valid() bool { return t >= Int8 && int(t) <= NumDTypes }

// IsFloat reports whether t is a floating-point type.
func (t DType) IsFloat() bool { return t >= Float16 && t <= Float64 }

// Op is a reduction of two elements to one. The zero value is not an operation.
type Op uint8

// The reductions. And, Or and Xor combine the bits of integers.
const (
	Sum Op = 1 + iota
	Prod
	Min
	Max
	And
	Or
	Xor
)

const numOps = int(Xor)

var opNames = [numOps + 1]string{"none", "sum", "prod", "min", "max", "and", "or", "xor"}

// Takes reports whether o combines elements of type t.
func (o Op) Takes(t DType) bool {
	return o >= Sum && int(o) <= numOps && t.Valid() && (o <= Max || !t.IsFloat())
}

// String returns the name of o in lower case, such as "sum".
func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return "unknown"
}
