// Package agree makes ranks agree on the members of the next generation, and on a number,
// although some ranks may exit meanwhile. A store decides which proposal counts.
// docs/design/membership.md describes the protocol; directory model has its model.
//
// The package starts no goroutines, reads no clock, and blocks only in calls of the Store. So
// a simulated store controls all schedules.
package agree

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-go/tutti/internal/jobstore"
)

// A Question is what the ranks of a group agree on.
type Question struct {
	// Key names the question in the store. All ranks use the same name, for one question.
	Key string
	// Self is this rank's number in the group, Size the number of ranks.
	Self, Size int
	// Value is this rank's number; the minimum is agreed on. It must be the same when the
	// rank calls Settle again.
	Value uint64
	// Tickets is the last ticket that an earlier decision has dealt with; see Decision.
	Tickets int64
	// Look returns the ranks that are known to be lost, and whether Settle waits for all other
	// ranks without a bound. Nil: none are lost, and Timeout is the bound.
	Look func() (lost []int, patient bool)
	// Absent are ranks that have been waited for already. They become members if they take
	// part, but Settle does not wait for them.
	Absent []int
	// Timeout is how long Settle waits for ranks that neither take part nor are lost.
	Timeout time.Duration
}

// A Decision is the answer to a Question. It is the same for all processes that read it.
type Decision struct {
	// Members are the ranks that took part and continue, by their old numbers, in order.
	Members []int `json:"members"`
	// Late are the tickets of the newcomers, which follow the members. Tickets is the last
	// ticket that this or an earlier decision has dealt with.
	Late    []int64 `json:"late,omitempty"`
	Tickets int64   `json:"tickets,omitempty"`
	// Value is the minimum of the members' numbers.
	Value uint64 `json:"value"`
}

// Size returns the number of members and newcomers.
func (d *Decision) Size() int { return len(d.Members) + len(d.Late) }

// Rank returns the new number of a rank; -1 if it is not a member.
func (d *Decision) Rank(old int) int { return slices.Index(d.Members, old) }

// Newcomer returns the new number of the holder of a ticket; -1 if it is not admitted.
func (d *Decision) Newcomer(ticket int64) int {
	if i := slices.Index(d.Late, ticket); i >= 0 {
		return len(d.Members) + i
	}
	return -1
}

// A rank that waits for the decision looks for lost ranks after firstLook. Each further
// interval is twice as long, up to lastLook.
const (
	firstLook = 5 * time.Millisecond
	lastLook  = 100 * time.Millisecond
)

// Settle takes part in a decision and returns it, whether or not this rank is a member. It
// may be called again after an error.
func Settle(ctx context.Context, s Store, q Question) (*Decision, error) {
	if err := s.Append(ctx, jobstore.Announced(q.Key), fmt.Appendf(nil, "%d %d\n", q.Self, q.Value)); err != nil {
		return nil, err
	}
	look := firstLook
	for waited := time.Duration(0); ; {
		said, err := s.Get(ctx, jobstore.Announced(q.Key))
		if err != nil {
			return nil, err
		}
		d, missing, patient, err := q.propose(said)
		if err != nil {
			return nil, err
		}
		if missing == nil || !patient && waited >= q.Timeout {
			return Propose(ctx, s, q.Key, d)
		}
		decided, err := s.Await(ctx, jobstore.Decision(q.Key), look)
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("ranks %v of %d did not take part; all ranks that run must make this call: %w", missing, q.Size, err)
		}
		if err != nil {
			return nil, err
		}
		if decided != nil {
			return parse(q.Key, decided)
		}
		if !patient {
			waited += look
		}
		look = min(2*look, lastLook)
	}
}

// propose returns the decision that this rank would make, and the ranks that may still take
// part.
func (q *Question) propose(said []byte) (d *Decision, missing []int, patient bool, err error) {
	values, err := q.announced(said)
	if err != nil {
		return nil, nil, false, err
	}
	var lost []int
	if q.Look != nil {
		lost, patient = q.Look()
	}
	d = &Decision{Value: q.Value, Tickets: q.Tickets}
	for r := range q.Size {
		value, came := values[r]
		switch exited := r != q.Self && slices.Contains(lost, r); {
		case exited:
		case came:
			d.Members = append(d.Members, r)
			d.Value = min(d.Value, value)
		case slices.Contains(q.Absent, r):
		default:
			missing = append(missing, r)
		}
	}
	return d, missing, patient, nil
}

// announced parses the announcements. A rank that has called Settle again has several.
func (q *Question) announced(said []byte) (map[int]uint64, error) {
	values := make(map[int]uint64)
	for line := range bytes.Lines(said) {
		number, rest, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
		rank, err := strconv.Atoi(number)
		value, bad := strconv.ParseUint(rest, 10, 64)
		if err != nil || bad != nil || rank < 0 || rank >= q.Size {
			return nil, fmt.Errorf("the store's value is not a list of ranks: %.40q; use a store that no other program writes to", line)
		}
		if old, again := values[rank]; !again || value < old {
			values[rank] = value
		}
	}
	return values, nil
}

// Propose writes a decision unless there is one, and returns the one that the store has.
func Propose(ctx context.Context, s Store, key string, d *Decision) (*Decision, error) {
	mine, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	decided, err := s.Create(ctx, jobstore.Decision(key), mine)
	if err != nil {
		return nil, err
	}
	return parse(key, decided)
}

// Learn waits for a decision in which this process does not take part, and returns it.
func Learn(ctx context.Context, s Store, key string) (*Decision, error) {
	decided, err := s.Get(ctx, jobstore.Decision(key))
	if err != nil {
		return nil, err
	}
	return parse(key, decided)
}

func parse(key string, decided []byte) (*Decision, error) {
	d := new(Decision)
	if err := json.Unmarshal(decided, d); err != nil || d.Size() == 0 {
		return nil, fmt.Errorf("the store's value is not a decision: %.40q; use a store that no other program writes to", decided)
	}
	return d, nil
}
