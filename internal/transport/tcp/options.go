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

// Options configure a Listener.
type Options struct {
	// Job names the job. Connections for another job are refused.
	Job string
	// Secret is known only to the ranks of the job and is never sent. It must not be empty.
	Secret []byte
	// Listen is the address to listen on, as in net.Listen. Empty: any port on all addresses.
	Listen string
	// Interface names the network interfaces whose addresses are offered to other ranks, separated
	// by commas. A leading ^ excludes the named interfaces instead. Empty: all, the loopback last.
	Interface string
	// TLS, if not nil, encrypts all connections. Both sides use it, as client and as server, and
	// require the other side's certificate. See jobtls.Config.
	TLS *tls.Config
	// Logger logs each refused connection once. Nil: no log.
	Logger *slog.Logger
	// HandshakeTimeout bounds the time until the dialer's proof. Zero: 10 s.
	HandshakeTimeout time.Duration
	// MaxPending bounds the connections without a proof. Beyond it the oldest is closed. Zero: 256.
	MaxPending int
	// ParkTimeout is how long an authenticated connection waits for its group to be made here.
	// Zero: 10 minutes.
	ParkTimeout time.Duration
	// MaxParked bounds the connections that wait for their group. Zero: 4096.
	MaxParked int
	// DeadAfter is how long a peer's host may not answer, approximately, before the peer is lost;
	// it is rounded to seconds. A running host answers even if its processes are stopped. Zero: 30
	// s. Maximum: keepalive.MaxHostTimeout.
	DeadAfter time.Duration
	// Verify adds a checksum to frames and messages. A receiver checks checksums even if its own
	// Verify is false.
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
	// All listeners of a job have these two limits; docs/design/security.md lists them.
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

// A Group identifies a group of the job. All its ranks use the same value.
type Group [16]byte

// jobID returns the part of a job's name that is sent.
func jobID(name string) (id [16]byte) {
	sum := sha256.Sum256([]byte(name))
	copy(id[:], sum[:])
	return id
}

// MeshOptions describe one rank's side of a group.
type MeshOptions struct {
	Group Group
	Rank  int
	// Peers holds the result of each rank's Listener.Addrs. A plain host:port is valid, too.
	Peers [][]string
	// CPUMasks holds for each rank the CPUs that its process may use; see affinity.Mask. If a host
	// has fewer CPUs than ranks, a waiting rank yields its CPU after every try. Nil: every rank has
	// the CPUs of this process.
	CPUMasks [][]byte
}

// oversubscribed reports whether this host has more ranks of the group than CPUs.
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

// validate checks the rank and the syntax of all addresses.
func (o *MeshOptions) validate() error {
	if o.Rank < 0 || o.Rank >= len(o.Peers) {
		return fmt.Errorf("tcp: rank %d is out of range for %d ranks", o.Rank, len(o.Peers))
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
