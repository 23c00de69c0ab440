package crc32c

import (
	"bytes"
	"hash/crc32"
	"testing"
)

// TestUpdate compares the checksum of several pieces with that of the standard library.
func TestUpdate(t *testing.T) {
	b := bytes.Repeat([]byte("tutti"), pieceBytes)
	want := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	if got := Update(Update(0, b[:3]), b[3:]); got != want || Update(0, nil) != 0 {
		t.Errorf("%x, want %x", got, want)
	}
}
