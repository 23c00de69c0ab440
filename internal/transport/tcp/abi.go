package tcp

import (
	"fmt"

	"github.com/tutti-go/tutti/internal/abi"
	"github.com/tutti-go/tutti/internal/jobtls"
	"github.com/tutti-go/tutti/internal/transport"
)

// ABI describes what ranks must have in common: the encoding of the handshake, of headers and of
// checksums.
func ABI() string {
	sample := hello{lane: laneMessages, from: 1, to: 2, size: 3, job: [16]byte{4}, group: Group{5}, listener: [8]byte{6}, nonce: [32]byte{7}}
	var head [headerBytes]byte
	(&header{kind: kindData, elem: 5, length: 1, id: 2, tag: 3}).put(head[:])
	return abi.Text("tcp",
		"version", protocolVersion, "magic", string(handshakeMagic[:]), "sizes", []int{helloBytes, challengeBytes, proofBytes, welcomeBytes},
		"hello", fmt.Sprintf("%x", sample.encode()), "lanes", []int{laneFrames, laneMessages, lanes, laneControl},
		"statuses", fmt.Sprintf("%d", []status{
			statusOK, statusVersion, statusJob, statusListener, statusClosed, statusCrossed, statusConnected, statusFull,
			statusLate, statusSize,
		}),
		"sides", sideCaller+sideListener, "server", jobtls.ServerName,
		"header", fmt.Sprintf("%x", head), "magic", headerMagic,
		"kinds", []int{kindFrame, kindReady, kindClear, kindData, kindWithdrawn, kindBye, kindNote, kindEnd},
		"sum", checksum(&transport.Head{1}, []byte("tutti")), "hasSum", hasSum,
		"note", transport.NoteBytes,
	)
}
