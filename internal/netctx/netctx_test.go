package netctx

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"
)

// lateContext is a context whose deadline has passed and whose timer has not fired yet.
type lateContext struct {
	context.Context
	end time.Time
}

func (c lateContext) Deadline() (time.Time, bool) { return c.end, true }

func TestErr(t *testing.T) {
	inner, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	late := lateContext{inner, time.Now()}
	if err := Err(late, io.EOF); err != nil {
		t.Fatal("an error with another cause:", err)
	}
	if err := Err(late, os.ErrDeadlineExceeded); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal("a timeout by the deadline of the context:", err)
	}
	if err := Err(context.Background(), os.ErrDeadlineExceeded); err != nil {
		t.Fatal("a timeout by another deadline:", err)
	}
	distant, cancel := context.WithTimeout(context.Background(), time.Hour)
	if err := Err(distant, os.ErrDeadlineExceeded); err != nil {
		t.Fatal("a timeout long before the deadline of the context:", err)
	}
	cancel()
	if err := Err(distant, io.EOF); !errors.Is(err, context.Canceled) {
		t.Fatal("a canceled context:", err)
	}
}
