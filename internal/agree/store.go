package agree

import (
	"context"
	"time"

	"github.com/tutti-go/tutti/store"
)

// A Store is what the agreement needs of the job's store. It serves one request after
// another. A request that returns an error may have been served; every request may be
// repeated.
type Store interface {
	// Append adds to the end of a key's value.
	Append(ctx context.Context, key string, value []byte) error
	// Get waits until a key exists, and returns its value.
	Get(ctx context.Context, key string) ([]byte, error)
	// Await is Get with a timeout. It returns nil if the key does not exist by then.
	Await(ctx context.Context, key string, timeout time.Duration) ([]byte, error)
	// Create sets a key unless it exists, and returns its value.
	Create(ctx context.Context, key string, value []byte) ([]byte, error)
}

// On returns a Store that uses s. The caller closes s.
func On(s store.Store) Store {
	if own, ok := s.(Store); ok { // a simulated store, which measures timeouts in virtual time
		return own
	}
	return adapter{s}
}

// An adapter makes a Store of a store.Store.
type adapter struct{ store.Store }

func (a adapter) Await(ctx context.Context, key string, timeout time.Duration) ([]byte, error) {
	short, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	value, err := a.Get(short, key)
	if err != nil && ctx.Err() == nil && short.Err() != nil {
		return nil, nil
	}
	return value, err
}

func (a adapter) Create(ctx context.Context, key string, value []byte) ([]byte, error) {
	return a.CompareAndSet(ctx, key, nil, value)
}
