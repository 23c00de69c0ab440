package store

import (
	"sync/atomic"
	"time"
)

// Limits bounds what a store accepts. A zero field means its default, which is
// PyTorch's where PyTorch has one.
type Limits struct {
	KeyBytes   int   // of one key; zero: 8 KiB
	ValueBytes int   // of one value; zero: 8 MiB
	Keys       int   // in the store, and in one request; zero: 128 Ki
	Queued     int   // values in all queues together; zero: 128 Ki
	Bytes      int64 // stored, and in requests being received; zero: 1 GiB
	Conns      int   // open connections; zero: 16 Ki
	Pending    int   // connections that have not authenticated yet; zero: 256, as for all listeners of a job
	Waiting    int   // waiting requests; zero: 16 Ki

	// RequestTime bounds the time that a request takes to arrive once its first byte
	// has arrived, and each write of an answer. A new connection must authenticate
	// within the same time, and within 10 s. Zero means 30 s.
	RequestTime time.Duration
}

// fill sets the fields that are zero to their defaults.
func (l *Limits) fill() {
	set := func(p *int, n int) {
		if *p == 0 {
			*p = n
		}
	}
	set(&l.KeyBytes, 8<<10)
	set(&l.ValueBytes, 8<<20)
	set(&l.Keys, 128<<10)
	set(&l.Queued, 128<<10)
	set(&l.Conns, 16<<10)
	set(&l.Pending, 256)
	set(&l.Waiting, 16<<10)
	if l.Bytes == 0 {
		l.Bytes = 1 << 30
	}
	if l.RequestTime == 0 {
		l.RequestTime = 30 * time.Second
	}
}

// A budget is the part of Limits.Bytes that is still free.
type budget struct{ left atomic.Int64 }

func (b *budget) take(n int64) error {
	if b.left.Add(-n) < 0 {
		b.left.Add(n)
		return kindf(ErrLimit, "the store has no room for %d bytes more", n)
	}
	return nil
}

func (b *budget) release(n int64) { b.left.Add(n) }

// checkRequest checks a request before it is sent: a server disconnects a client that
// exceeds a limit.
func (l *Limits) checkRequest(keys []string, values [][]byte) error {
	if len(keys) > l.Keys {
		return kindf(ErrLimit, "%d keys in one request; %d are allowed", len(keys), l.Keys)
	}
	for _, k := range keys {
		if len(userPrefix)+len(k) > l.KeyBytes {
			return kindf(ErrLimit, "a key of %d bytes; %d are allowed", len(k), l.KeyBytes-len(userPrefix))
		}
	}
	for _, v := range values {
		if len(v) > l.ValueBytes {
			return kindf(ErrLimit, "a value of %d bytes; %d are allowed", len(v), l.ValueBytes)
		}
	}
	return nil
}
