package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// A parentGroup is an engine that can only fail.
type parentGroup struct {
	Engine
	cause  Cause
	failed chan struct{}
}

func (p *parentGroup) Rank() int               { return 1 }
func (p *parentGroup) Size() int               { return 3 }
func (p *parentGroup) Failure() *Failure       { return p.cause.Load() }
func (p *parentGroup) Failed() <-chan struct{} { return p.failed }

func (p *parentGroup) Fail(f *Failure) {
	if p.Failure() == nil {
		_ = p.cause.Take(f, nil, func() { close(p.failed) })
	}
}

// TestFormEnded has another member end the new group while this rank makes its engine of it. The
// parent's failure names that member and its failure, not this rank.
func TestFormEnded(t *testing.T) {
	p := &parentGroup{failed: make(chan struct{})}
	first := &Failure{Kind: ErrTimeout, Op: forming, Rank: 0, Told: true, Facts: Facts{Event: LimitPassed}}
	_, err := Form(t.Context(), p, []int{2, 1, 0}, func(context.Context) (Engine, error) {
		return nil, errors.Join(fmt.Errorf("sharing memory: %w", first))
	})
	f, ok := errors.AsType[*Failure](err)
	if !ok || f.Rank != 2 || !errors.Is(f, ErrTimeout) || f.Event != FormingFailed || f.Cause == nil || f.Cause.Event != LimitPassed {
		t.Errorf("this rank, 1, reports %+v, not the failure of rank 2", err)
	}
	if p.Failure() == nil {
		t.Error("the parent group has not failed")
	}
}

// TestFormFails has this rank fail to make its engine. The parent's failure names this rank.
func TestFormFails(t *testing.T) {
	p := &parentGroup{failed: make(chan struct{})}
	why := errors.New("no memory")
	_, err := Form(t.Context(), p, []int{2, 1, 0}, func(context.Context) (Engine, error) { return nil, why })
	f, ok := errors.AsType[*Failure](err)
	if !ok || f.Rank != 1 || !errors.Is(err, ErrAborted) || !errors.Is(f.Err, why) {
		t.Errorf("%+v", err)
	}
}
