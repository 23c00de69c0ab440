package segment

import "github.com/tutti-go/tutti/internal/abi"

const (
	// tokenBytes is the size of what a process must know to be let in.
	tokenBytes = 32
	// noted is the first byte of a message that is no key, but a note; one without
	// anything else is a goodbye.
	noted = 0
	// separator is between the scope and the key in a message.
	separator = "\x00"
	// Root is the scope that is open as long as the link.
	Root = "root"
)

// ABI describes what processes of one host must have in common to pass each
// other memory.
func ABI() string {
	return abi.Text("segment", "token", tokenBytes, "mark", markBytes, "noted", noted, "separator", separator, "root", Root)
}
