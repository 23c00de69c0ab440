package transport

import "github.com/tutti-go/tutti/internal/abi"

// ABI describes what ranks must have in common: the size of a head and the checksum.
func ABI() string {
	return abi.Text("transport", "head", HeadBytes, "sum", Sum(0, []byte("tutti")))
}
