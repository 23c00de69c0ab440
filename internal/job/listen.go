package job

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/launchenv"
	"github.com/tutti-go/tutti/internal/transport/tcp"
)

// listen makes the data listener of this process. A job whose address is on the loopback listens on
// no other interface. Any other job encrypts its data, unless Config.NoEncryption is set.
func (j *Job) listen() (*tcp.Listener, error) {
	cfg := &j.cfg
	opts := tcp.Options{Interface: cfg.Interface, TLS: cfg.TLS, Logger: cfg.Logger, DeadAfter: cfg.HostTimeout, Verify: cfg.Verify}
	if !launchenv.OnLoopback(cfg.Addr) {
		if cfg.TLS == nil && !cfg.NoEncryption {
			return nil, fmt.Errorf("rank 0 is at %s, which is not on the loopback, and without encryption its data would be readable on the network; set Config.Secret (TUTTI_SECRET), or Config.NoEncryption (TUTTI_NO_ENCRYPTION) to allow that", cfg.Addr)
		}
		return tcp.Bind(opts)
	}
	opts.Interface = ""
	var errs []error
	for _, at := range launchenv.Loopbacks(cfg.Addr) {
		opts.Listen = at
		l, err := tcp.Bind(opts)
		if err == nil {
			return l, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// deriveKey derives a key for one purpose from another key.
func (*Job) deriveKey(key []byte, use, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("tutti " + use + " 2\x00" + text))
	return h.Sum(nil)
}

// A NotLoopbackError says that the job's address is on the loopback but its ranks are in different
// networks. This happens if the address of a loopback job is passed to another host. All ranks
// return the same error. It matches engine.ErrMismatch.
type NotLoopbackError struct {
	Addr string
	Rank int // the first rank in another network than rank 0
}

func (e *NotLoopbackError) Error() string {
	return fmt.Sprintf("rank %d is on another host, or in another network namespace, than rank 0, and the job's address %s is on the loopback, "+
		"which reaches neither; give all ranks an address of rank 0's host that they reach, and the same secret "+
		"(Config.Addr, Config.Secret; TUTTI_ADDR, TUTTI_SECRET)", e.Rank, e.Addr)
}

// Is reports whether target is engine.ErrMismatch.
func (e *NotLoopbackError) Is(target error) bool { return target == engine.ErrMismatch }

// checkOneNetwork returns a NotLoopbackError if the job is on the loopback and its ranks are in
// different networks. Unavailable hints are ignored.
func checkOneNetwork(addr string, peers []rankInfo) error {
	if !launchenv.OnLoopback(addr) {
		return nil
	}
	first := peers[0].network
	for r, p := range peers {
		if p.network.fields == first.fields && p.network != first {
			return &NotLoopbackError{Addr: addr, Rank: r}
		}
	}
	return nil
}
