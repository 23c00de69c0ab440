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
	"github.com/tutti-go/tutti/internal/engine/shm"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/overlay"
	"github.com/tutti-go/tutti/internal/segment"
	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/transport/tcp"
	"golang.org/x/sys/cpu"
)

// Protocol is the number of the protocol between ranks. It is raised by every change of how
// ranks work together that shows in no ABI function: an algorithm
// that sends its data in another order, a step more in forming a group. A changed
// constant or struct needs no new number, because it changes the hash of the ABI.
const Protocol = 3

// module is the path by which programs import tutti.
const module = "github.com/tutti-go/tutti"

// version is what this rank runs. More is what packages above rely on.
func version(more string) control.Version {
	sum := sha256.Sum256([]byte(description(more)))
	return control.Version{Protocol: Protocol, ABI: hex.EncodeToString(sum[:6]), Release: release()}
}

// description is all that ranks must have in common, in lines.
func description(more string) string {
	return abi.Text("job",
		"bigEndian", cpu.IsBigEndian, "wordBits", bits.UintSize,
		"world", worldGroup, "leaders", leadersSuffix, "meet", hostsKey, "host", hostName, "rounds", maxHostRounds,
		"card", rankInfoFormat, "hint", hintBytes, "standing", []int{attached, readsNext},
	) + kernel.ABI() + transport.ABI() + tcp.ABI() + segment.ABI() + engine.ABI() + control.ABI() + overlay.ABI() + shm.ABI() + network.ABI() + hier.ABI() + more
}

// release is the version of the module that this program was built with, if it
// uses one as it was published; "" if it uses a copy, or is a part of the module.
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

// firstOption is the name of the option by which ranks of protocol 1, which compare
// options and no versions, find out that this rank is of another one.
const protocol1Option = "tutti's protocol (1 where it is not set)"

// A firstCard is as much of the card of protocol 1 as this rank needs.
type protocol1Info struct {
	Alike map[string]string `json:"alike,omitempty"`
}

// firstBlob is the card of this rank for ranks of protocol 1: they compare its
// options with their own, and end their Join with the difference.
func protocol1Blob(v control.Version, alike map[string]string) ([]byte, error) {
	all := map[string]string{protocol1Option: fmt.Sprintf("%d (ABI %s)", v.Protocol, v.ABI)}
	maps.Copy(all, alike)
	return json.Marshal(protocol1Info{all})
}
