package store

import (
	"sync/atomic"
	"time"
)

// Limits bounds what a store takes. Zero fields mean the defaults, which are
// PyTorch's where PyTorch has one.
type Limits struct {
	KeyBytes   int   // of one key; zero: 8 KiB
	ValueBytes int   // of one value; zero: 8 MiB
	Keys       int   // in the store, and in one request; zero: 128 Ki
	Queued     int   // values in all queues together; zero: 128 Ki
	Bytes      int64 // of all that is stored or on its way in; zero: 1 GiB
	Conns      int   // open connections; zero: 16 Ki
	Pending    int   // of them, connections that have not proved who they are; zero: 256
	Waiting    int   // requests that wait at the same time; zero: 16 Ki

	// RequestTime is how long a request may take to arrive once it has begun,
	// and how long a piece of an answer may take to leave. Zero: 30 s. A new
	// connection has as long to prove who it is, but at most 10 s.
	RequestTime time.Duration
}

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

// A budget is what is left of Limits.Bytes.
type budget struct{ left atomic.Int64 }

func (b *budget) take(n int64) error {
	if b.left.Add(-n) < 0 {
		b.left.Add(n)
		return kindf(ErrLimit, "the store has no room for %d bytes more", n)
	}
	return nil
}

func (b *budget) give(n int64) { b.left.Add(n) }

// allows checks what is about to be sent: a server would cut the connection.
func (l *Limits) allows(keys []string, values [][]byte) error {
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
