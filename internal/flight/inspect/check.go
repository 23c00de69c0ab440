package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/tutti-go/tutti/internal/engine"

	"github.com/tutti-go/tutti/internal/flight"
)

// Limits of one dump. A dump file may come from an untrusted source; the limits
// bound the memory and time of reading it. Comm.Dump stays far below them.
const (
	maxDump = 16 << 20 // bytes of JSON
	maxOps  = 1 << 16  // operations, and the same number of messages
	maxSize = 1 << 30  // ranks
)

// errDumpSize is the error for a dump that is longer than maxDump.
var errDumpSize = fmt.Errorf("the dump is longer than %d MiB; Comm.Dump writes at most a few", maxDump>>20)

// A boundedReader fails when more than left bytes are read. The decoder reads ahead
// by less than one dump, so resetting left for each dump is sufficient.
type boundedReader struct {
	r    io.Reader
	left int // bytes that the current dump may still take
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errDumpSize
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// An encodedDump is a dump whose operations are not decoded yet. A decoded
// operation takes up to 60 times the memory of its JSON, so operations are counted
// before they are decoded.
type encodedDump struct {
	flight.Dump
	Ops  []json.RawMessage `json:"ops"`
	Msgs []json.RawMessage `json:"messages"`
}

// decode returns the whole dump, or an error that names the invalid field.
func (e *encodedDump) decode() (*flight.Dump, error) {
	d := &e.Dump
	if d.Version != flight.Version {
		return nil, fmt.Errorf("it is a dump of version %d; this tutti reads version %d", d.Version, flight.Version)
	}
	err := checkHead(d)
	if err == nil {
		d.Ops, err = decodeOps("ops", e.Ops, d.Size)
	}
	if err == nil {
		d.Msgs, err = decodeOps("messages", e.Msgs, d.Size)
	}
	if err != nil {
		return nil, fmt.Errorf("the dump is damaged: %w", err)
	}
	return d, nil
}

// checkHead checks all fields but the operations and messages.
func checkHead(d *flight.Dump) error {
	switch {
	case d.Size < 1 || d.Size > maxSize:
		return fmt.Errorf("size is %d; it must be 1 to %d", d.Size, maxSize)
	case d.Began.IsZero():
		return errors.New("began, the time at which the Comm was made, is missing")
	case d.At < 0:
		return fmt.Errorf("at is %d; times are not negative", d.At)
	}
	if err := checkRank("rank", d.Rank, d.Size); err != nil {
		return err
	}
	for i, r := range d.Behind {
		if err := checkRank(fmt.Sprintf("behind[%d]", i), r, d.Size); err != nil {
			return err
		}
	}
	return nil
}

func checkRank(field string, rank, size int) error {
	if rank < 0 || rank >= size {
		return fmt.Errorf("%s is %d; the Comm's ranks are 0 to %d", field, rank, size-1)
	}
	return nil
}

// decodeOps decodes operations and sorts them by number. Of two with the same
// number it keeps the first: an operation that begins while the dump is written may
// also be in the list of waiting operations.
func decodeOps(field string, list []json.RawMessage, size int) ([]flight.Op, error) {
	if len(list) > maxOps {
		return nil, fmt.Errorf("%s has %d entries; at most %d are possible", field, len(list), maxOps)
	}
	ops := make([]flight.Op, len(list))
	for i, text := range list {
		err := json.Unmarshal(text, &ops[i])
		if err == nil {
			err = checkOp(&ops[i], size)
		}
		if err != nil {
			return nil, fmt.Errorf("%s[%d]: %w", field, i, err)
		}
	}
	slices.SortStableFunc(ops, bySeq)
	return slices.CompactFunc(ops, func(a, b flight.Op) bool { return a.Seq == b.Seq }), nil
}

func bySeq(a, b flight.Op) int {
	switch {
	case a.Seq < b.Seq:
		return -1
	case a.Seq > b.Seq:
		return 1
	}
	return 0
}

// checkOp returns an error that names an invalid field of an operation, or nil.
func checkOp(op *flight.Op, size int) error {
	switch op.State {
	case flight.StateQueued, flight.StateRunning, flight.StateFailed, flight.StateDone:
	default:
		return fmt.Errorf("state is %q; it must be queued, running, failed or done", op.State)
	}
	if op.Seq == 0 {
		return errors.New("seq is 0; operations are numbered from 1")
	}
	if op.Verb == "" {
		return errors.New("verb is missing")
	}
	if min(op.Queued, op.Start, op.End) < 0 {
		return fmt.Errorf("queued, start and end are %d, %d and %d; times are not negative", op.Queued, op.Start, op.End)
	}
	if op.Root != nil {
		if err := checkRank("root", *op.Root, size); err != nil {
			return err
		}
	}
	if op.Peer != nil && *op.Peer != engine.AnyRank {
		return checkRank("peer", *op.Peer, size)
	}
	return nil
}
