package job

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/bits"
	"runtime/debug"

	"github.com/tutti-go/tutti/internal/abi"
	"github.com/tutti-go/tutti/internal/control"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/hier"
	"github.com/tutti-go/tutti/internal/engine/network"
	"github.com/tutti-go/tutti/internal/engine/p2p"
	"github.com/tutti-go/tutti/internal/engine/shm"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/overlay"
	"github.com/tutti-go/tutti/internal/segment"
	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/transport/shmem"
	"github.com/tutti-go/tutti/internal/transport/tcp"
	"golang.org/x/sys/cpu"
)

// Protocol is the version of the protocol between ranks. It must be raised with every change of how
// ranks work together that no ABI function shows: an algorithm that sends its data in another
// order, or another step in forming a group. A changed constant or struct needs no new number,
// because it changes the hash of the ABI.
const Protocol = 3

// module is the module path of tutti.
const module = "github.com/tutti-go/tutti"

// version returns the version of this rank. more describes what packages above rely on.
func version(more string) control.Version {
	sum := sha256.Sum256([]byte(description(more)))
	return control.Version{Protocol: Protocol, ABI: hex.EncodeToString(sum[:6]), Release: release()}
}

// description lists everything that ranks must have in common.
func description(more string) string {
	return abi.Text("job",
		"bigEndian", cpu.IsBigEndian, "wordBits", bits.UintSize,
		"world", worldGroup, "leaders", leadersSuffix, "meet", hostsKey, "host", hostName, "rounds", maxHostRounds,
		"card", rankInfoFormat, "hint", hintBytes, "standing", []int{attached, readsNext}, "settle", []int{settleAsk, settleAnswer, settleBytes},
	) + kernel.ABI() + transport.ABI() + tcp.ABI() + shmem.ABI() + segment.ABI() + engine.ABI() + p2p.ABI() + control.ABI() + overlay.ABI() + shm.ABI() + network.ABI() + hier.ABI() + more
}

// release returns the version of the published tutti module that this program uses. It is empty if
// the program uses a copy or is part of the module.
func release() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == module && m.Replace == nil && m.Version != "(devel)" {
			return m.Version
		}
	}
	return ""
}

// protocol1Option is an additional option. Ranks of protocol 1 compare options but no versions. By
// this option they detect that this rank has another version.
const protocol1Option = "tutti's protocol (1 where it is not set)"

// protocol1Info is the part of a protocol 1 rankInfo that this rank needs.
type protocol1Info struct {
	Alike map[string]string `json:"alike,omitempty"`
}

// protocol1Blob is this rank's blob for ranks of protocol 1. They compare its options with their
// own, and their Join fails with the difference.
func protocol1Blob(v control.Version, alike map[string]string) ([]byte, error) {
	all := map[string]string{protocol1Option: fmt.Sprintf("%d (ABI %s)", v.Protocol, v.ABI)}
	maps.Copy(all, alike)
	return json.Marshal(protocol1Info{all})
}
