package engine

import "unsafe"

// A ValueByte is a byte of a message of package value. Its element type, kernel.Value, differs from
// that of bytes of users, so that neither is received in place of the other. Users cannot name it.
type ValueByte byte

// ValueBytes returns the bytes as elements of a message of package value. It does not copy them.
func ValueBytes(b []byte) []ValueByte {
	return unsafe.Slice((*ValueByte)(unsafe.SliceData(b)), len(b))
}

// BytesOfValue returns the bytes of a message of package value. It does not copy them.
func BytesOfValue(b []ValueByte) []byte {
	return unsafe.Slice((*byte)(unsafe.SliceData(b)), len(b))
}
