package enginetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// endingCases are groups that fail or are left before their operations complete:
// one rank is absent, is cancelled, calls Fail, or closes.
func endingCases(opt Options) []Case {
	var cases []Case
	for _, v := range opt.allVerbs() {
		for _, n := range []int{5, 20_000} {
			if v == engine.Barrier && n > 5 {
				continue
			}
			op := Op{Verb: v, ReduceOp: engine.Sum, Type: kernel.Float32, N: n, Exact: !opt.RankOrder}
			for who := range 2 {
				cases = append(cases, absentCase(op, who), leavingCase(op, who))
			}
			cases = append(cases, givingUpCase(op), cancelCase(op), stopCase(op), leavingBusyCase(op))
		}
	}
	exchange := Op{Type: kernel.Int64, N: 40_000}
	cases = append(cases, endedContextCase(), cancelCase(exchange), stopCase(exchange), leavingBusyCase(exchange))
	return append(cases, messageEndingCases()...)
}

func caseName(what string, op Op) string {
	if op.Verb == 0 {
		return fmt.Sprintf("ending/%s/messages/n=%d", what, op.N)
	}
	return fmt.Sprintf("ending/%s/%v/n=%d", what, op.Verb, op.N)
}

// callAfterFailure waits until the group has failed and then makes a call.
func callAfterFailure(ctx context.Context, r *Rank, op Op) error {
	select {
	case <-r.Failed():
		return r.expectFailure(ctx, op)
	case <-ctx.Done():
		return errors.New("the group did not fail")
	}
}

// absentCase is a rank that makes no call until the contexts of the other ranks have ended. All ranks get
// ErrTimeout that names the absent rank, and a rank with a deadline of its own also matches DeadlineExceeded.
func absentCase(op Op, absent int) Case {
	return Case{
		Name: fmt.Sprintf("%s/rank %d", caseName("absent", op), absent), Ranks: 3,
		Fault: &Fault{Kind: engine.ErrTimeout, Ranks: []int{absent}},
		Body: func(ctx context.Context, r *Rank) error {
			if err := warmUp(ctx, r); err != nil {
				return r.failed(ctx, err)
			}
			if r.Rank() == absent {
				return callAfterFailure(ctx, r, op)
			}
			return r.checkOwnCause(r.expectFailureIn(ctx, lateDeadline, op), context.DeadlineExceeded)
		},
	}
}

// checkOwnCause checks that a failure that began on this rank wraps the error saw.
func (r *Rank) checkOwnCause(err, saw error) error {
	f := (*engine.Failure)(nil)
	if errors.As(err, &f) && f.Rank == r.Rank() && !errors.Is(f.Err, saw) {
		return fmt.Errorf("rank %d saw %v, its failure says %v", r.Rank(), saw, f.Err)
	}
	return err
}

// givingUpCase is a rank that waits for an absent rank and is cancelled. The third rank waits without a
// deadline of its own. All fail with ErrAborted that names the first two.
func givingUpCase(op Op) Case {
	const absent, cancelled = 0, 2
	return Case{
		Name: caseName("cancelled while waiting", op), Ranks: 3,
		Fault: &Fault{Kind: engine.ErrAborted, Ranks: []int{absent, cancelled}, Text: []string{errOnPurpose.Error()}},
		Body: func(ctx context.Context, r *Rank) error {
			switch r.Rank() {
			case absent:
				return callAfterFailure(ctx, r, op)
			case cancelled:
				return r.checkOwnCause(r.expectFailureIn(ctx, lateCancel, op), context.Canceled)
			}
			return r.expectFailure(ctx, op)
		},
	}
}

// endedContextCase is a context of rank 1 that has ended before the call. Both ranks fail with ErrAborted;
// only rank 1 also matches context.Canceled.
func endedContextCase() Case {
	op := Op{Verb: engine.AllReduce, ReduceOp: engine.Sum, Type: kernel.Int32, N: 5}
	return Case{
		Name: caseName("cancelled before", op), Ranks: 2,
		Fault: &Fault{Kind: engine.ErrAborted, Ranks: []int{1}, Text: []string{errOnPurpose.Error()}},
		Body: func(ctx context.Context, r *Rank) error {
			if r.Rank() == 0 {
				return r.expectFailure(ctx, op)
			}
			own, cancel := context.WithCancelCause(ctx)
			cancel(errOnPurpose)
			return r.checkOwnCause(r.expectFailure(own, op), context.Canceled)
		},
	}
}

// untilFailure repeats do until it fails, and returns that failure as failed does. After the given number of
// turns it calls then in a goroutine, while the work continues, and waits for that goroutine before it
// returns.
func (r *Rank) untilFailure(ctx context.Context, do func(turn int) error, turns int, then func()) error {
	done := make(chan struct{})
	for i := 0; ; i++ {
		if i == turns {
			go func() {
				then()
				close(done)
			}()
		}
		if err := do(i); err != nil {
			if i >= turns {
				<-done
			}
			return r.failed(ctx, err)
		}
	}
}

// endless is more turns than any test runs.
const endless = 1 << 62

// work returns the function that ranks repeat until a fault ends it: the operation op, with
// another root in each turn, or, if op has no verb, messages of op.N elements between all
// pairs of ranks.
func (r *Rank) work(ctx context.Context, op Op) func(turn int) error {
	if op.Verb != 0 {
		return func(turn int) error {
			op.Root = turn
			return r.Do(ctx, op)
		}
	}
	var list []Transfer
	for from := range r.Size() {
		for to := range r.Size() {
			list = append(list, Transfer{From: from, To: to, Tag: 1, Type: op.Type, N: op.N})
		}
	}
	return func(int) error { return r.exchange(ctx, false, list...) }
}

// cancelCase is a rank whose context is cancelled while it repeats op. All ranks fail with ErrAborted that
// names it; a goroutine of that rank cancels.
func cancelCase(op Op) Case {
	const cancelled = 1
	return Case{
		Name: caseName("cancelled while busy", op), Ranks: 3,
		Fault: &Fault{Kind: engine.ErrAborted, Ranks: []int{cancelled}, Text: []string{errOnPurpose.Error()}},
		Body: func(ctx context.Context, r *Rank) error {
			if r.Rank() != cancelled {
				return r.untilFailure(ctx, r.work(ctx, op), endless, nil)
			}
			own, cancel := context.WithCancelCause(ctx)
			err := r.untilFailure(ctx, r.work(own, op), 20, func() { cancel(errOnPurpose) })
			return r.checkOwnCause(err, context.Canceled)
		},
	}
}

// stopCase is a group on which a goroutine calls Fail while all ranks are busy.
func stopCase(op Op) Case {
	cause := &engine.Failure{Kind: engine.ErrAborted, Rank: 2, Facts: engine.Facts{Text: "somebody pulled the plug"}}
	return Case{
		Name: caseName("stopped", op), Ranks: 4,
		Fault: &Fault{Kind: cause.Kind, Text: []string{cause.Error()}},
		Body: func(ctx context.Context, r *Rank) error {
			if r.Rank() != cause.Rank {
				return r.untilFailure(ctx, r.work(ctx, op), endless, nil)
			}
			return r.untilFailure(ctx, r.work(ctx, op), 20, func() { r.Fail(cause) })
		},
	}
}

// leavingCase is a rank that closes its engine while the other ranks still need it: these fail with
// ErrRankLost.
func leavingCase(op Op, leaver int) Case {
	return Case{
		Name: fmt.Sprintf("%s/rank %d", caseName("left", op), leaver), Ranks: 3,
		Fault: &Fault{Kind: engine.ErrRankLost, Ranks: []int{leaver}, Lost: []int{leaver}},
		Body: func(ctx context.Context, r *Rank) error {
			if err := warmUp(ctx, r); err != nil {
				return r.failed(ctx, err)
			}
			if r.Rank() == leaver {
				return r.Close()
			}
			return r.expectFailure(ctx, op)
		},
	}
}

// leavingBusyCase is a rank that closes its engine between two operations while the other ranks continue:
// these fail with ErrRankLost.
func leavingBusyCase(op Op) Case {
	const leaver, turns = 1, 20
	return Case{
		Name: caseName("left while busy", op), Ranks: 4,
		Fault: &Fault{Kind: engine.ErrRankLost, Ranks: []int{leaver}, Lost: []int{leaver}},
		Body: func(ctx context.Context, r *Rank) error {
			if r.Rank() != leaver {
				return r.untilFailure(ctx, r.work(ctx, op), endless, nil)
			}
			work := r.work(ctx, op)
			for i := range turns {
				if err := work(i); err != nil {
					return err
				}
			}
			return r.Close()
		},
	}
}

// messageEndingCases are messages that the other side never posts: it is absent, cancelled, or calls Fail, or
// has left. The third rank, in a barrier, gets the same failure.
func messageEndingCases() []Case {
	var cases []Case
	for _, t := range []Transfer{
		{From: 0, To: 1, Tag: 4, Type: kernel.Int32, N: 20_000},
		{From: 1, To: 0, Tag: 4, Type: kernel.Int32, N: 5},
	} {
		does := "receive"
		if t.From == 0 {
			does = "send"
		}
		add := func(what string, fault Fault, body func(context.Context, *Rank) error) {
			cases = append(cases, Case{
				Name: fmt.Sprintf("ending/%s/%s", what, does), Ranks: 3, Fault: &fault,
				Body: func(ctx context.Context, r *Rank) error {
					if r.Rank() == 2 {
						return r.expectFailure(ctx, Op{Verb: engine.Barrier})
					}
					return body(ctx, r)
				},
			})
		}
		add("absent", Fault{Kind: engine.ErrTimeout, Ranks: []int{1}}, func(ctx context.Context, r *Rank) error {
			if r.Rank() == 1 {
				return callAfterFailure(ctx, r, Op{Verb: engine.Barrier})
			}
			return r.checkOwnCause(r.failed(ctx, r.exchange(lateDeadline(ctx), false, t)), context.DeadlineExceeded)
		})
		add("cancelled", Fault{Kind: engine.ErrAborted, Ranks: []int{0, 1}}, func(ctx context.Context, r *Rank) error {
			if r.Rank() == 1 {
				return callAfterFailure(ctx, r, Op{Verb: engine.Barrier})
			}
			return r.checkOwnCause(r.failed(ctx, r.exchange(lateCancel(ctx), false, t)), context.Canceled)
		})
		cause := &engine.Failure{Kind: engine.ErrAborted, Rank: 1, Facts: engine.Facts{Text: "somebody pulled the plug"}}
		stopped := Fault{Kind: engine.ErrAborted, Text: []string{cause.Error()}}
		add("stopped", stopped, func(ctx context.Context, r *Rank) error {
			if r.Rank() == 1 {
				r.Fail(cause)
				return callAfterFailure(ctx, r, Op{Verb: engine.Barrier})
			}
			return r.failed(ctx, r.exchange(ctx, false, t))
		})
	}
	return append(cases, leftMessageCase(true), leftMessageCase(false))
}

// leftMessageCase is a message whose other side has left the group: rank 0 fails with ErrRankLost. There is
// no third rank, because its barrier would detect the departure by itself.
func leftMessageCase(send bool) Case {
	t := Transfer{From: 1, To: 0, Tag: 4, Type: kernel.Int32, N: 5}
	name := "ending/left/receive"
	if send {
		t.From, t.To, name = 0, 1, "ending/left/send"
	}
	return Case{
		Name: name, Ranks: 2,
		Fault: &Fault{Kind: engine.ErrRankLost, Ranks: []int{1}, Lost: []int{1}},
		Body: func(ctx context.Context, r *Rank) error {
			if r.Rank() == 1 {
				return r.Close()
			}
			return r.failed(ctx, r.exchange(ctx, false, t))
		},
	}
}
