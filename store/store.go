package store

import "context"

// A Store maps keys to values. [Client], [Memory] and what [Prefix] returns are
// Stores. All methods may be called from many goroutines at once. Values that
// are passed in are not kept, and those returned belong to the caller.
//
// A call whose context ends returns an error that matches the context's.
// Whether a change that was under way has happened is then not known.
type Store interface {
	// Set gives a key a value and wakes those who wait for it.
	Set(ctx context.Context, key string, value []byte) error

	// Get waits until the key is there and returns its value. The value is
	// empty if the key is deleted at the same moment.
	Get(ctx context.Context, key string) ([]byte, error)

	// Add adds to a key that holds a number as decimal text, and returns the
	// sum. A key that is not there counts as zero.
	Add(ctx context.Context, key string, delta int64) (int64, error)

	// CompareAndSet sets a key to desired if its value is expected, or if it is
	// not there and expected is empty. It returns the key's value after that.
	// One case cannot be told apart, as in PyTorch: a key that is not there
	// stays so if expected is not empty, and expected is returned.
	CompareAndSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error)

	// Wait waits until all keys are there. A queue is there while it holds
	// something.
	Wait(ctx context.Context, keys ...string) error

	// Check reports whether all keys are there.
	Check(ctx context.Context, keys ...string) (bool, error)

	// Append adds to the end of a key's value. A key that is not there counts
	// as empty.
	Append(ctx context.Context, key string, value []byte) error

	// Delete removes a key and reports whether it was there.
	Delete(ctx context.Context, key string) (bool, error)

	// MultiGet waits until all keys are there and returns their values.
	MultiGet(ctx context.Context, keys ...string) ([][]byte, error)

	// MultiSet sets several keys.
	MultiSet(ctx context.Context, pairs ...Pair) error

	// List returns the keys, in no order. Queues are not among them.
	List(ctx context.Context) ([]string, error)

	// NumKeys returns how many keys the whole store has, whatever the prefix,
	// those for its own use included.
	NumKeys(ctx context.Context) (int64, error)

	// Barrier waits until n callers have called it with the same key. The key
	// counts them, so each barrier needs a key of its own; whoever comes after
	// the n-th does not wait. A caller that gives up stays counted.
	Barrier(ctx context.Context, key string, n int) error

	// Push adds a value to the end of a queue. Queues and keys are apart.
	Push(ctx context.Context, key string, value []byte) error

	// Pop waits until the queue holds something, and takes its first value.
	Pop(ctx context.Context, key string) ([]byte, error)

	// TryPop takes a queue's first value. The error matches ErrEmpty if there
	// is none.
	TryPop(ctx context.Context, key string) ([]byte, error)

	// QueueLen returns how many values a queue holds.
	QueueLen(ctx context.Context, key string) (int64, error)
}

// A Pair is a key and its value.
type Pair struct {
	Key   string
	Value []byte
}

// userPrefix stands before all keys of users, as PyTorch does it. The store's
// own keys have none.
const userPrefix = "/"

// memberKey counts the members of a PyTorch job.
const memberKey = "init/"

func userKeys(keys []string) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = userPrefix + k
	}
	return out
}
