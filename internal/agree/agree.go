// Package agree is how ranks agree although some of them die meanwhile: on who
// goes on, and on a number, with a store as arbiter. docs/design/membership.md is the
// protocol, and folder model its model.
//
// It has no goroutines and no clock, and blocks only in calls of the Store: so a
// simulated store decides all that happens.
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
)

// A Question is what the ranks of a group are to agree on.
type Question struct {
	// Key names the question; all ranks use the same, once.
	Key string
	// Self is this rank's number in the group, Size how many there are.
	Self, Size int
	// Value is this rank's number. The least of all is agreed on. It must not
	// change any more: this rank may ask again, with the same.
	Value uint64
	// Tickets is how many newcomers have been dealt with; see Decision.
	Tickets int64
	// Look returns the ranks that are known to be lost, and whether those of which
	// nothing is known are waited for without end. Nil: nobody, and no.
	Look func() (lost []int, patient bool)
	// Absent are ranks that have been waited for already: they count if they come,
	// but nobody waits for them again.
	Absent []int
	// Patience is how long ranks of which nothing is known are waited for.
	Patience time.Duration
}

// A Decision is what was agreed on. All who learn of it learn the same.
type Decision struct {
	// Members are the ranks that took part and go on, by their numbers, in order.
	Members []int `json:"members"`
	// Late are the tickets of newcomers, who come after them, and Tickets is the
	// last ticket that was dealt with, here or before.
	Late    []int64 `json:"late,omitempty"`
	Tickets int64   `json:"tickets,omitempty"`
	// Value is the least of the members' numbers.
	Value uint64 `json:"value"`
}

// Size is how many go on.
func (d *Decision) Size() int { return len(d.Members) + len(d.Late) }

// Rank is the new number of a rank; -1 if it is not a member.
func (d *Decision) Rank(old int) int { return slices.Index(d.Members, old) }

// Newcomer is the new number of the holder of a ticket; -1 if it is not let in.
func (d *Decision) Newcomer(ticket int64) int {
	if i := slices.Index(d.Late, ticket); i >= 0 {
		return len(d.Members) + i
	}
	return -1
}

// The keys of a question.
func here(key string) string { return key + "/here" }
func next(key string) string { return key + "/next" }

// DecisionKey is the store's key that is there once a question is decided. It lets a
// process ask whether Learn would wait.
func DecisionKey(key string) string { return next(key) }

// A rank that waits for the decision looks around after 5 ms, and then less and
// less often.
const (
	firstLook = 5 * time.Millisecond
	lastLook  = 100 * time.Millisecond
)

// Settle takes part in a decision and returns it, whether or not this rank is a
// member. It may be called again after an error.
func Settle(ctx context.Context, s Store, q Question) (*Decision, error) {
	if err := s.Append(ctx, here(q.Key), fmt.Appendf(nil, "%d %d\n", q.Self, q.Value)); err != nil {
		return nil, err
	}
	look := firstLook
	for waited := time.Duration(0); ; {
		said, err := s.Get(ctx, here(q.Key))
		if err != nil {
			return nil, err
		}
		d, missing, patient, err := q.propose(said)
		if err != nil {
			return nil, err
		}
		if missing == nil || !patient && waited >= q.Patience {
			return Propose(ctx, s, q.Key, d)
		}
		decided, err := s.Await(ctx, next(q.Key), look)
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("of ranks 0 to %d these have not come: %v: %w", q.Size-1, missing, err)
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

// propose is the decision that this rank would make, and who else is to be
// expected.
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
		switch gone := r != q.Self && slices.Contains(lost, r); {
		case gone:
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

// announced reads who has announced itself with which number.
func (q *Question) announced(said []byte) (map[int]uint64, error) {
	values := make(map[int]uint64)
	for line := range bytes.Lines(said) {
		who, what, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
		rank, err := strconv.Atoi(who)
		value, bad := strconv.ParseUint(what, 10, 64)
		if err != nil || bad != nil || rank < 0 || rank >= q.Size {
			return nil, fmt.Errorf("the store's key %q holds something else than ranks: %.40q", here(q.Key), line)
		}
		if old, again := values[rank]; !again || value < old {
			values[rank] = value
		}
	}
	return values, nil
}

// Propose makes a decision, unless there is one, and returns the one there is.
func Propose(ctx context.Context, s Store, key string, d *Decision) (*Decision, error) {
	mine, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	decided, err := s.Create(ctx, next(key), mine)
	if err != nil {
		return nil, err
	}
	return parse(key, decided)
}

// Learn waits for a decision in which this process has no say.
func Learn(ctx context.Context, s Store, key string) (*Decision, error) {
	decided, err := s.Get(ctx, next(key))
	if err != nil {
		return nil, err
	}
	return parse(key, decided)
}

func parse(key string, decided []byte) (*Decision, error) {
	d := new(Decision)
	if err := json.Unmarshal(decided, d); err != nil || d.Size() == 0 {
		return nil, fmt.Errorf("the store's key %q holds something else than a decision: %.40q", next(key), decided)
	}
	return d, nil
}
