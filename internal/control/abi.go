package control

import "github.com/tutti-go/tutti/internal/abi"

// ABI describes what the ranks must have in common after Join: the kinds and the layout of frames.
// Package overlay describes its messages. The encoding of the handshake never changes and is not
// part of the ABI.
func ABI() string {
	return abi.Text("control",
		"kinds", []kind{challenge, hello, refused, leaving, welcome, putBlob, allBlobs, control, heartbeat},
		"maxFrame", maxFrame, "keyBytes", keyBytes,
		"frame", abi.Struct[frame](),
	)
}
