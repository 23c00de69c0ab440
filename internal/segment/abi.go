package segment

import "github.com/tutti-go/tutti/internal/abi"

const (
	// addrPrefix begins the names of the sockets of listeners.
	addrPrefix = "@tutti-"
	// addrBytes is how much of such a name is random.
	addrBytes = 12
)

// ABI describes what processes of one host must have in common to pass each
// other memory.
func ABI() string {
	return abi.Text("segment", "addr", addrPrefix, "addrBytes", addrBytes, "nonce", nonceBytes,
		"message", []int{proofBytes, requestBytes, answerBytes, passed, refused, withheld}, "uses", []string{requesting, answering},
		"liveness", abi.Struct[robustList]())
}
