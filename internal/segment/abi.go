package segment

import "github.com/tutti-go/tutti/internal/abi"

const (
	// addrPrefix begins the names of the listeners' sockets.
	addrPrefix = "@tutti-"
	// addrBytes is the number of random bytes in a listener's address.
	addrBytes = 12
)

// ABI describes what the processes of one host must have in common to pass segments to each other.
func ABI() string {
	return abi.Text("segment", "addr", addrPrefix, "addrBytes", addrBytes, "nonce", nonceBytes,
		"message", []int{proofBytes, requestBytes, answerBytes, passed, refused, withheld}, "uses", []string{requesting, answering},
		"liveness", abi.Struct[robustList]())
}
