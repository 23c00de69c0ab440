package control

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// RemindInterval is the time between two lines in the log of a rank that waits in Join.
const RemindInterval = 10 * time.Second

// answerTime is how long a rank whose context has ended waits for rank 0 to say which ranks are
// missing.
const answerTime = 500 * time.Millisecond

// Remind calls f every interval, on a goroutine of its own, with the time since the call of Remind.
// The returned function ends the context of f and waits for the goroutine.
func Remind(ctx context.Context, interval time.Duration, f func(ctx context.Context, waited time.Duration)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(ended)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				f(ctx, time.Since(began))
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// LogMissing logs which ranks have not joined.
func LogMissing(log *slog.Logger, missing []int, size int, waited time.Duration) {
	log.Info("tutti: Join waits for ranks", "missing", engine.Ranks(missing), "joined", fmt.Sprintf("%d of %d", size-len(missing), size),
		"waited", waited.Round(time.Second))
}

// A MissingError is the error of a rank whose context ended in Join, with what rank 0 has said about
// the ranks that have not joined.
type MissingError struct {
	reason string
	err    error // of the context
}

func (e *MissingError) Error() string { return e.reason + ": " + e.err.Error() }

// Unwrap returns the error of the context.
func (e *MissingError) Unwrap() error { return e.err }

// errNotAll returns the error of a rank that does not know which ranks have not joined.
func errNotAll(ctx context.Context) error {
	return fmt.Errorf("not all ranks have joined: %w", ctx.Err())
}

// leaveJoin returns the error of a rank whose context has ended while it waited for its welcome. It
// asks rank 0 which ranks are missing, and waits for at most answerTime.
func (m *Member) leaveJoin(ctx context.Context) error {
	// Rank 0 may have given up, too, and closed the connection: its reason is then there to be read.
	_ = m.rootConn.send(&frame{Kind: leaving, Rank: m.cfg.Rank})
	err := m.rootConn.SetReadDeadline(time.Now().Add(answerTime))
	var f *frame
	if err == nil {
		f, err = m.rootConn.receive(maxFrame)
	}
	switch {
	case err != nil || f.Kind != refused || f.Reason == "":
		return errNotAll(ctx)
	case f.Mismatch:
		return mismatchError(f.Reason)
	}
	return &MissingError{f.Reason, ctx.Err()}
}

// status describes how many ranks have joined, and which have not. leaver is a rank that leaves at
// this moment, or 0. The caller holds h.mu.
func (h *joinServer) status(leaver int) (text string, missing []int) {
	var left []int
	for r := 1; r < len(h.conns); r++ {
		switch {
		case !h.joinedOnce[r]:
			missing = append(missing, r)
		case h.conns[r] == nil && r != leaver:
			left = append(left, r)
		}
	}
	text = fmt.Sprintf("%d of %d ranks joined", len(h.conns)-len(missing), len(h.conns))
	if len(missing) > 0 {
		text += fmt.Sprintf("; %s missing", engine.Ranks(missing))
	}
	if len(left) > 0 {
		text += fmt.Sprintf("; %s left before that", engine.Ranks(left))
	}
	return text + h.refused, missing
}

// logMissing logs which ranks have not joined, if any.
func (h *joinServer) logMissing(_ context.Context, waited time.Duration) {
	h.mu.Lock()
	var missing []int
	for r := 1; r < len(h.conns); r++ {
		if h.conns[r] == nil {
			missing = append(missing, r)
		}
	}
	h.mu.Unlock()
	if len(missing) > 0 {
		LogMissing(h.member.cfg.Logger, missing, len(h.conns), waited)
	}
}
