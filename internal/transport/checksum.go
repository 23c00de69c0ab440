package transport

import "hash/crc32"

// castagnoli is the polynomial for which processors have an instruction.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumPiece is how much is summed at once: the collector can stop it between two.
const sumPieceBytes = 128 << 10

// Sum goes on with a checksum, CRC-32C, over some bytes. It begins with zero.
func Sum(sum uint32, b []byte) uint32 {
	for len(b) > 0 {
		n := min(len(b), sumPieceBytes)
		sum = sumPiece(sum, b[:n])
		b = b[n:]
	}
	return sum
}

//go:noinline
func sumPiece(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }
