package transport

import (
	"github.com/tutti-go/tutti/internal/abi"
	"github.com/tutti-go/tutti/internal/crc32c"
)

// ABI describes what ranks must have in common: the size of a head and the checksum.
func ABI() string {
	return abi.Text("transport", "head", HeadBytes, "note", NoteBytes, "sum", crc32c.Update(0, []byte("tutti")))
}
