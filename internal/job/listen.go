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

// listen makes this process reachable for the data of other ranks. Data goes where
// the job's address is: a job on the loopback listens on no other interface, and any
// other job encrypts its data, unless that is turned off by name.
func (j *Job) listen() (*tcp.Listener, error) {
	cfg := &j.cfg
	opts := tcp.Options{Interface: cfg.Interface, TLS: cfg.TLS, Logger: cfg.Logger, DeadAfter: cfg.Silence, Verify: cfg.Verify}
	if !launchenv.OnLoopback(cfg.Addr) {
		if cfg.TLS == nil && !cfg.Plain {
			return nil, fmt.Errorf("rank 0 is at %s, which is not on the loopback, and without a secret nothing would be encrypted", cfg.Addr)
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

// mac derives a key for one use of another one.
func (*Job) mac(key []byte, use, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("tutti " + use + " 2\x00" + text))
	return h.Sum(nil)
}

// A FarError says that ranks of a job on the loopback are in different networks, as
// they are where its address is passed on to another host. All ranks find the same
// one. It matches engine.ErrMismatch.
type NotLoopbackError struct {
	Addr string
	Rank int // the first that is not where rank 0 is
}

func (e *NotLoopbackError) Error() string {
	return fmt.Sprintf("rank %d is on another host, or in another network namespace, than rank 0, and the job's address %s is on the loopback, "+
		"which reaches neither; give all ranks an address of rank 0's host that they reach, and the same secret "+
		"(Config.Addr, Config.Secret; TUTTI_ADDR, TUTTI_SECRET)", e.Rank, e.Addr)
}

// Is reports whether target is engine.ErrMismatch.
func (e *NotLoopbackError) Is(target error) bool { return target == engine.ErrMismatch }

// oneNetwork returns a FarError if a job on the loopback has ranks that do not share
// it. Hints that cannot be had say nothing.
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
