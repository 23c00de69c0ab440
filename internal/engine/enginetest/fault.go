package enginetest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// Fault is the failure that a case provokes, as every rank must report it.
type Fault struct {
	Kind error
	// Ranks are the ranks that the text names.
	Ranks []int
	// Text is what the text must contain.
	Text []string
	// Lost are the ranks that have exited. They get no error.
	Lost []int
}

// verify checks that every rank that is not lost has the same failure, both as an error of its calls and as
// its engine's Failure, and that it is the expected one. It is called after all ranks have ended.
func (f *Fault) verify(engines []engine.Engine, errs []error) error {
	said := ""
	for rank, err := range errs {
		if slices.Contains(f.Lost, rank) {
			continue
		}
		if err == nil {
			return fmt.Errorf("rank %d was told nothing of the fault", rank)
		}
		if err := f.Check(err); err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
		if said == "" {
			said = err.Error()
		}
		if err.Error() != said {
			return fmt.Errorf("ranks report different causes:\n%s\n%s", said, err)
		}
		if own := engines[rank].Failure(); own == nil || own.Error() != said {
			return fmt.Errorf("rank %d: Failure is %v, calls returned %q", rank, own, said)
		}
	}
	return nil
}

var rankName = regexp.MustCompile(`\brank [0-9]+`)

func differ(list []string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return s != list[0] })
}

// Check checks the error of one rank that is not lost. The caller must check that
// all ranks have the same error.
func (f *Fault) Check(err error) error {
	failure := (*engine.Failure)(nil)
	if !errors.As(err, &failure) {
		return fmt.Errorf("%T is not a *engine.Failure: %w", err, err)
	}
	if !errors.Is(err, f.Kind) {
		return fmt.Errorf("the failure is not %q: %w", f.Kind, err)
	}
	if !slices.Equal(failure.Lost, f.Lost) {
		return fmt.Errorf("ranks %v are lost, want %v: %w", failure.Lost, f.Lost, err)
	}
	for _, part := range f.Text {
		if !strings.Contains(err.Error(), part) {
			return fmt.Errorf("the text does not say %q: %w", part, err)
		}
	}
	if sides := rankName.FindAllString(failure.Reason(), -1); f.Kind == engine.ErrMismatch && !differ(sides) {
		return fmt.Errorf("the text does not name two ranks: %w", err)
	}
	for _, rank := range f.Ranks {
		if !regexp.MustCompile(fmt.Sprintf(`\branks? [0-9, and]*\b%d\b`, rank)).MatchString(err.Error()) {
			return fmt.Errorf("the text does not name rank %d: %w", rank, err)
		}
	}
	return nil
}

// expectFailure runs operations of which one is known to fail on some rank. A rank
// whose own part succeeds, because it waits for nothing, must get the failure in
// its next operation. It returns the failure.
func (r *Rank) expectFailure(ctx context.Context, ops ...Op) error {
	return r.expectFailureIn(ctx, func(ctx context.Context) context.Context { return ctx }, ops...)
}

// expectFailureIn is expectFailure with a context of its own for each operation.
func (r *Rank) expectFailureIn(ctx context.Context, in func(context.Context) context.Context, ops ...Op) error {
	err := r.Try(in(ctx), ops...)
	r.arena.overwrite()
	if err == nil {
		err = r.Try(in(ctx), Op{Verb: engine.Barrier})
	}
	return r.failed(ctx, err)
}

// failed checks that the failure in err is final: every later call returns it. If so, it
// returns the Failure itself. If a later call does not return it, failed returns an error
// that wraps no Failure, so that its caller can tell the two results apart.
func (r *Rank) failed(ctx context.Context, err error) error {
	if err == nil {
		return errors.New("nothing has failed")
	}
	f := (*engine.Failure)(nil)
	if !errors.As(err, &f) {
		return err
	}
	// Texts that the test has wrapped around the Failure differ between ranks.
	err = f
	select {
	case <-r.Failed():
	default:
		return fmt.Errorf("the channel Failed is open after %v", err)
	}
	again := r.Try(ctx, Op{Verb: engine.AllReduce, ReduceOp: engine.Sum, Type: kernel.Float32, N: 3})
	if again == nil || again.Error() != err.Error() {
		return fmt.Errorf("the next operation returned %v after %v", again, err)
	}
	m := engine.Message{Peer: r.Rank(), Tag: 1, Mem: memOf(newBytes(8), kernel.Int64)}
	r.Post(&m)
	if again := r.Finish(ctx, &m); again == nil || again.Error() != err.Error() {
		return fmt.Errorf("a message returned %v after %v", again, err)
	}
	return err
}
