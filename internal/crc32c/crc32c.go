// Package crc32c is the checksum with which ranks find damaged data.
package crc32c

import "hash/crc32"

// castagnoli is the polynomial for which processors have an instruction.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// pieceBytes bounds one call of crc32.Update, which the garbage collector cannot stop.
const pieceBytes = 128 << 10

// Update returns the checksum of b after bytes whose checksum is sum. The checksum of no
// bytes is zero.
func Update(sum uint32, b []byte) uint32 {
	for len(b) > 0 {
		n := min(len(b), pieceBytes)
		sum = update(sum, b[:n])
		b = b[n:]
	}
	return sum
}

//go:noinline
func update(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }
