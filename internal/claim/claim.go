// Package claim makes a process the only holder of a key in a store. A claim
// whose holder has ended can be taken over; one whose holder lives cannot.
//
// Whether a holder lives is known at once if it is on the same host, by its
// process id. Otherwise it is known by its beats: Keep changes the key once a
// second, and a holder whose key has not changed for five seconds has ended, or is
// stopped. A holder that was stopped and goes on finds that it has lost its claim.
// The store needs only what PyTorch's has.
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
	// beatTime is the time between two beats.
	beatTime = time.Second
	// lostTime is how long a holder may not beat.
	lostTime = 5 * beatTime
	// lookTime is how often beats are looked for.
	lookTime = beatTime / 4
)

// A holder is what the key holds, as JSON.
type holder struct {
	Name    string  `json:"name"` // for people
	Process process `json:"process"`
	Token   string  `json:"token"` // in no other claim
	Beat    int64   `json:"beat"`
	Left    bool    `json:"left,omitempty"` // the claim is free; see Leave
}

// Name is what a claim of this process calls it, for people.
func Name() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("process %d on %s", os.Getpid(), host)
}

// A Claim is this process's hold on a key. Its methods must not be called at the
// same time, except Token.
type Claim struct {
	store store.Store
	key   string
	me    holder
	value []byte // of the key, as far as this process knows
	beat  time.Duration
}

// A TakenError says that another process, which lives, holds the key.
type TakenError struct{ Holder string }

func (e *TakenError) Error() string { return e.Holder }

// A LostError says that another process has taken the claim over.
type LostError struct{ Holder string }

func (e *LostError) Error() string {
	return fmt.Sprintf("%s has taken the place that this process held; a process loses it if it gives no sign of life for %v, or claims it again", e.Holder, lostTime)
}

// Options are for Take.
type Options struct {
	// Using reports whether the holder with a token uses what it has claimed
	// without beats. It is asked about holders on other hosts, before and after
	// their beats are waited for. Nil: none does.
	Using func(ctx context.Context, token string) bool

	lost time.Duration // zero: lostTime; for tests
	self *process      // nil: this process; for tests
}

// Take claims a key. The error is a *TakenError if another process holds it. A
// claim of this process itself, by an earlier call, is taken over.
func Take(ctx context.Context, s store.Store, key string, opt Options) (*Claim, error) {
	c := &Claim{store: s, key: key, me: holder{Name: Name(), Process: self(), Token: rand.Text()}, beat: beatTime}
	if opt.self != nil {
		c.me.Process = *opt.self
	}
	if opt.lost == 0 {
		opt.lost = lostTime
	}
	c.value = c.me.encode()
	var before []byte // nil: nobody
	for {
		value, err := s.CompareAndSet(ctx, key, before, c.value)
		if err != nil {
			return nil, err
		}
		if string(value) == string(c.value) {
			return c, nil
		}
		// A key that is not there answers with what was expected.
		gone := before != nil && string(value) == string(before)
		before = nil
		if gone {
			continue
		}
		if other, ok := decode(value); ok {
			if err := c.displace(ctx, value, other, &opt); err != nil {
				return nil, err
			}
			before = value
		} else if len(value) > 0 {
			return nil, fmt.Errorf("the store's key %q holds something else than a claim: %.40q", key, value)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// displace returns nil if the key may be taken from another holder.
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
			return fmt.Errorf("%s holds the place, and it is not known yet whether it lives: %w", other.Name, ctx.Err())
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
			return nil // released, or somebody else's: Take looks again
		}
	}
	// The holder may have begun to use the claim meanwhile; then it no longer beats. If the
	// holder begins after this question, its Confirm fails once this process has the claim.
	if using() {
		return &TakenError{other.Name}
	}
	return nil
}

// Token returns what is in no other claim.
func (c *Claim) Token() string { return c.me.Token }

// Keep beats until ctx ends, and then returns nil. It returns a *LostError if the
// claim was taken over. It does not begin at once: most claims are needed for
// milliseconds only.
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
		// Other errors of the store reach the caller in its own calls.
	}
}

// Confirm makes sure that this process still holds the key. It is for a holder that
// beats no more because Options.Using reports it from now on. A process that takes the claim
// over after a silence either sees that, or is found here. The error is a *LostError
// if the claim was taken over.
func (c *Claim) Confirm(ctx context.Context) error {
	c.me.Beat++ // a beat whose answer has not arrived must not be taken for this one
	for {
		if again, err := c.renew(ctx); !again {
			return err
		}
	}
}

// renew is one beat. It is to be called again if the key held a beat whose answer
// had not arrived. The error is a *LostError if the claim was taken over.
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
		// A key that is not there answers with c.value. Nobody deletes it.
		again = string(now) != string(value) && string(now) != string(c.value)
		c.me.Beat, c.value = held.Beat, now // and not the token, which others may read
		return again, nil
	}
}

// Release gives the key back, if this process still holds it: the key is empty then.
// It is not deleted, because another process may have taken it by then.
func (c *Claim) Release(ctx context.Context) { c.free(ctx, nil) }

// Leave gives the key back, too, but the key still says that there was a holder.
func (c *Claim) Leave(ctx context.Context) {
	left := c.me
	left.Left = true
	c.free(ctx, left.encode())
}

// free puts a value into the key that lets other processes take it, if this process
// still holds it.
func (c *Claim) free(ctx context.Context, value []byte) {
	for {
		now, err := c.store.CompareAndSet(ctx, c.key, c.value, value)
		held, ok := decode(now)
		if err != nil || !ok || held.Token != c.me.Token || held.Left || string(now) == string(c.value) {
			return
		}
		c.value = now // a beat had arrived whose answer had not
	}
}

func (h *holder) encode() []byte {
	text, _ := json.Marshal(h) // strings and numbers: never fails
	return text
}

func decode(value []byte) (h holder, ok bool) {
	return h, json.Unmarshal(value, &h) == nil && h.Token != ""
}
