package transport

import "hash/crc32"

// castagnoli is the polynomial of CRC-32C, which amd64 and arm64 compute by an instruction.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumPieceBytes bounds the bytes summed between two points at which the garbage collector can stop
// the goroutine.
const sumPieceBytes = 128 << 10

// Sum continues the CRC-32C checksum sum over b. A new checksum begins with sum zero.
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
