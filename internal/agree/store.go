package agree

import (
	"context"
	"time"

	"github.com/tutti-go/tutti/store"
)

// A Store is what the agreement needs of the arbiter. It serves one request
// after another. Whether a request whose error is not nil has been served is not
// known; all of them may be repeated.
type Store interface {
	// Append adds to the end of a key's value.
	Append(ctx context.Context, key string, value []byte) error
	// Get waits until a key is there, and returns its value.
	Get(ctx context.Context, key string) ([]byte, error)
	// Await is Get that waits no longer than that. It returns nil if the key is
	// not there by then.
	Await(ctx context.Context, key string, most time.Duration) ([]byte, error)
	// Create gives a key a value unless it has one, and returns the one it has.
	Create(ctx context.Context, key string, value []byte) ([]byte, error)
}

// On makes a Store of a rendezvous store, unless it is one. It owns nothing.
func On(s store.Store) Store {
	if own, is := s.(Store); is { // a simulated one, which has its own time
		return own
	}
	return rendezvous{s}
}

type rendezvous struct{ store.Store }

func (r rendezvous) Await(ctx context.Context, key string, most time.Duration) ([]byte, error) {
	short, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	value, err := r.Get(short, key)
	if err != nil && ctx.Err() == nil && short.Err() != nil {
		return nil, nil
	}
	return value, err
}

func (r rendezvous) Create(ctx context.Context, key string, value []byte) ([]byte, error) {
	return r.CompareAndSet(ctx, key, nil, value)
}
