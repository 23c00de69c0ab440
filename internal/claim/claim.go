// Package claim makes a process the only holder of a key in a store. Another process can
// take a claim over if the holder has exited, and cannot if the holder runs.
//
// The process id shows at once whether a holder on the same host runs. A holder on another
// host sends heartbeats: Keep changes the key once per second. A holder whose key has not
// changed for five seconds has exited, or is stopped (SIGSTOP). A holder that was stopped
// and continues finds that it has lost its claim. The package uses only operations that
// PyTorch's store has, too.
package claim

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tutti-go/tutti/store"
)

const (
	// beatTime is the time between two heartbeats.
	beatTime = time.Second
	// lostTime is the time without heartbeats after which a holder has lost its claim.
	lostTime = 5 * beatTime
	// lookTime is the time between two checks for a heartbeat.
	lookTime = beatTime / 4
)

// A holder is the value of the key, as JSON.
type holder struct {
	Name    string  `json:"name"` // of the process, for people
	Process process `json:"process"`
	Token   string  `json:"token"`          // unique to the claim
	Beat    int64   `json:"beat"`           // number of the last heartbeat
	Left    bool    `json:"left,omitempty"` // the claim is free; see Leave
}

// Name returns the name of this process in its claims, for people.
func Name() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("process %d on %s", os.Getpid(), host)
}

// A Claim is this process's hold on a key. Its methods must not be called concurrently,
// except Token.
type Claim struct {
	store store.Store
	key   string
	me    holder
	value []byte // the last value of the key that this process has seen
	beat  time.Duration
}

// A TakenError means that another process, which runs, holds the key.
type TakenError struct{ Holder string }

func (e *TakenError) Error() string { return e.Holder }

// A LostError means that another process has taken the claim over.
type LostError struct{ Holder string }

func (e *LostError) Error() string {
	return fmt.Sprintf("%s has replaced this process; a process is replaced if it is stopped for %v, or registers again", e.Holder, lostTime)
}

// Options are for Take.
type Options struct {
	// Using reports whether the holder with a token uses what it has claimed, without
	// heartbeats. Take calls it for holders on other hosts, before and after it waits for
	// their heartbeats. Nil: no holder does.
	Using func(ctx context.Context, token string) bool

	lost time.Duration // zero: lostTime; for tests
	self *process      // nil: this process; for tests
}

// Take claims a key. The error is a *TakenError if another process holds it. Take replaces
// an earlier claim of this process.
func Take(ctx context.Context, s store.Store, key string, opt Options) (*Claim, error) {
	c := &Claim{store: s, key: key, me: holder{Name: Name(), Process: self(), Token: rand.Text()}, beat: beatTime}
	if opt.self != nil {
		c.me.Process = *opt.self
	}
	if opt.lost == 0 {
		opt.lost = lostTime
	}
	c.value = c.me.encode()
	var before []byte // the value to replace; nil: the key is free
	for {
		value, err := s.CompareAndSet(ctx, key, before, c.value)
		if err != nil {
			return nil, err
		}
		if string(value) == string(c.value) {
			return c, nil
		}
		// If the key does not exist, the store answers with the expected value.
		deleted := before != nil && string(value) == string(before)
		before = nil
		if deleted {
			continue
		}
		if other, ok := decode(value); ok {
			if err := c.displace(ctx, value, other, &opt); err != nil {
				return nil, err
			}
			before = value
		} else if len(value) > 0 {
			return nil, fmt.Errorf("the store's value is not a claim of a rank: %.40q; use a store that no other program writes to", value)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// displace returns nil if this process may take the key from another holder, and a *TakenError
// if that holder runs. It waits up to opt.lost for a heartbeat of a holder on another host,
// and fails if ctx ends first.
func (c *Claim) displace(ctx context.Context, value []byte, other holder, opt *Options) error {
	if other.Left {
		return nil
	}
	switch other.Process.compare(c.me.Process) {
	case same, ended:
		return nil
	case living:
		return &TakenError{other.Name}
	}
	using := func() bool { return opt.Using != nil && opt.Using(ctx, other.Token) }
	if using() {
		return &TakenError{other.Name}
	}
	for end := time.Now().Add(opt.lost); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s has the place, and it is not known yet whether it runs: %w", other.Name, ctx.Err())
		case <-time.After(min(lookTime, opt.lost/4)):
		}
		now, err := c.store.CompareAndSet(ctx, c.key, nil, c.value)
		if err != nil {
			return err
		}
		if string(now) != string(value) {
			if again, ok := decode(now); ok && again.Token == other.Token && !again.Left {
				return &TakenError{other.Name}
			}
			return nil // released, or another process's: Take looks again
		}
	}
	// The holder may have begun to use the claim meanwhile; then it sends no heartbeats. If it
	// begins after this call, its Confirm fails once this process has the claim.
	if using() {
		return &TakenError{other.Name}
	}
	return nil
}

// Token returns a text that no other claim has.
func (c *Claim) Token() string { return c.me.Token }

// Keep sends heartbeats until ctx ends, and then returns nil. It returns a *LostError if the
// claim was taken over. The first heartbeat is sent after beatTime: most claims are needed
// for milliseconds only.
func (c *Claim) Keep(ctx context.Context) error {
	tick := time.NewTicker(c.beat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		_, err := c.renew(ctx)
		if lost := (*LostError)(nil); errors.As(err, &lost) {
			return lost
		}
		// The caller sees other errors of the store in its own calls.
	}
}

// Confirm checks that this process still holds the key. A holder calls it when it stops its
// heartbeats because Options.Using reports it from now on. A process that takes the claim
// over either sees that, or Confirm finds it. The error is a *LostError if the claim was
// taken over.
func (c *Claim) Confirm(ctx context.Context) error {
	c.me.Beat++ // a heartbeat whose answer was lost must differ from this one
	for {
		if again, err := c.renew(ctx); !again {
			return err
		}
	}
}

// renew sends one heartbeat. If again is true, the key had an earlier heartbeat whose answer
// was lost, and the caller calls renew again. The error is a *LostError if the claim was
// taken over.
func (c *Claim) renew(ctx context.Context) (again bool, err error) {
	next := c.me
	next.Beat++
	value := next.encode()
	now, err := c.store.CompareAndSet(ctx, c.key, c.value, value)
	if err != nil {
		return false, err
	}
	switch held, ok := decode(now); {
	case !ok: // the process that took it has released it
		return false, &LostError{"another process"}
	case held.Token != c.me.Token:
		return false, &LostError{held.Name}
	default:
		// If the key did not exist, the store would answer with c.value. It is never deleted.
		again = string(now) != string(value) && string(now) != string(c.value)
		c.me.Beat, c.value = held.Beat, now
		return again, nil
	}
}

// Release frees the key if this process still holds it. The key is then empty. It is not
// deleted, because another process may have taken it meanwhile.
func (c *Claim) Release(ctx context.Context) { c.free(ctx, nil) }

// Leave frees the key like Release, but the key still names the last holder.
func (c *Claim) Leave(ctx context.Context) {
	left := c.me
	left.Left = true
	c.free(ctx, left.encode())
}

// free sets the key to a value that lets other processes take it, if this process still
// holds it.
func (c *Claim) free(ctx context.Context, value []byte) {
	for {
		now, err := c.store.CompareAndSet(ctx, c.key, c.value, value)
		held, ok := decode(now)
		if err != nil || !ok || held.Token != c.me.Token || held.Left || string(now) == string(c.value) {
			return
		}
		c.value = now // a heartbeat whose answer was lost
	}
}

func (h *holder) encode() []byte {
	text, _ := json.Marshal(h) // strings and numbers: never fails
	return text
}

func decode(value []byte) (h holder, ok bool) {
	return h, json.Unmarshal(value, &h) == nil && h.Token != ""
}
