package tcp

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"log/slog"
	"time"

	"github.com/tutti-go/tutti/internal/affinity"
	"github.com/tutti-go/tutti/internal/keepalive"
)

// Options say how a process is reached and who may reach it.
type Options struct {
	// Job names the job. Whoever calls on behalf of another one is refused.
	Job string
	// Secret is known to the ranks of the job and to nobody else. It never
	// travels. It must not be empty.
	Secret []byte
	// Listen is the address to listen on, as in net.Listen. Empty: any port
	// of all addresses.
	Listen string
	// Interface names the network interfaces whose addresses are offered to
	// other ranks, separated by commas; with a leading ^, those whose
	// addresses are not. Empty: all, the loopback last.
	Interface string
	// TLS, if not nil, encrypts all connections. Both sides use it, as clients
	// and as servers, and always ask for the other side's certificate. See
	// jobtls.Config.
	TLS *tls.Config
	// Logger is told once about every connection that is refused. Nil: nobody.
	Logger *slog.Logger
	// HandshakeTimeout is how long a caller may take to prove itself. Zero: 10 s.
	HandshakeTimeout time.Duration
	// MaxPending is how many callers may be about to prove themselves; beyond
	// that, the longest waiting one is refused. Zero: 256.
	MaxPending int
	// ParkTimeout is how long a proven caller waits for a group that is not
	// there yet. Zero: 10 minutes.
	ParkTimeout time.Duration
	// MaxParked is how many of them may wait. Zero: 4096.
	MaxParked int
	// DeadAfter is about how long a peer's host may not answer before the peer
	// is lost; counted in seconds. A living host answers even if its ranks are
	// stopped. Zero: 30 s; at most silence.Longest.
	DeadAfter time.Duration
	// Verify gives what is sent a checksum. What has one is checked by its
	// receiver in any case.
	Verify bool
}

// withDefaults returns o with its zero values replaced.
func (o Options) withDefaults() Options {
	if o.Listen == "" {
		o.Listen = ":0"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.HandshakeTimeout <= 0 {
		o.HandshakeTimeout = 10 * time.Second
	}
	if o.MaxPending <= 0 {
		o.MaxPending = 256
	}
	if o.ParkTimeout <= 0 {
		o.ParkTimeout = 10 * time.Minute
	}
	if o.MaxParked <= 0 {
		o.MaxParked = 4096
	}
	o.DeadAfter = keepalive.Clamp(o.DeadAfter)
	if o.TLS != nil {
		o.TLS = requireTLS13(o.TLS)
	}
	return o
}

// A Group tells the groups of a job apart. Its ranks agree on it.
type Group [16]byte

// jobID is what travels of a job's name.
func jobID(name string) (id [16]byte) {
	sum := sha256.Sum256([]byte(name))
	copy(id[:], sum[:])
	return id
}

// MeshOptions describe one rank's side of a group.
type MeshOptions struct {
	Group Group
	Rank  int
	// Peers holds, for each rank, what its Listener's Addrs has returned. A
	// plain host:port is fine too.
	Peers [][]string
	// Cores holds, for each rank, the processors that its process may use: see
	// cores.Mask. Where a host has fewer than ranks, one that waits leaves its
	// processor to others at every turn. Nil means that all have this process's.
	CPUMasks [][]byte
}

// crowded reports whether there are more ranks on this host than processors.
func (o *MeshOptions) oversubscribed() bool {
	near := sameHostRanks(o.Peers, o.Rank)
	var masks [][]byte
	for _, r := range near {
		if o.CPUMasks != nil {
			masks = append(masks, o.CPUMasks[r])
		}
	}
	return affinity.Oversubscribed(len(near), masks)
}

func (o *MeshOptions) validate() error {
	if o.Rank < 0 || o.Rank >= len(o.Peers) {
		return fmt.Errorf("tcp: rank %d of %d", o.Rank, len(o.Peers))
	}
	for r, addrs := range o.Peers {
		if r == o.Rank {
			continue
		}
		if len(addrs) == 0 {
			return fmt.Errorf("tcp: rank %d has no address", r)
		}
		for _, a := range addrs {
			if _, err := parseAddr(a); err != nil {
				return fmt.Errorf("tcp: rank %d: %w", r, err)
			}
		}
	}
	return nil
}
