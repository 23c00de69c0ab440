package control

import "github.com/tutti-go/tutti/internal/abi"

// ABI describes what ranks must have in common once they have joined: the kinds of
// frames. Package overlay describes the messages. What comes before that never changes.
func ABI() string {
	return abi.Text("control",
		"kinds", []kind{challenge, hello, refused, welcome, putBlob, allBlobs, control, heartbeat},
		"maxFrame", maxFrame, "keyBytes", keyBytes,
		"frame", abi.Struct[frame](),
	)
}
