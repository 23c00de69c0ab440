package store

import "context"

// A Store maps keys to values, and names to queues. [Client], [Memory] and the result
// of [Prefix] implement it. All methods may be called concurrently. The store copies
// the values that are passed to it, and the caller owns the values that it returns.
//
// When its context ends, a call returns an error that matches the context's error.
// The call's change may or may not have happened then.
type Store interface {
	// Set sets a key's value and wakes the calls that wait for the key.
	Set(ctx context.Context, key string, value []byte) error

	// Get waits until the key exists and returns its value. The value is empty if
	// another call deletes the key at the same moment.
	Get(ctx context.Context, key string) ([]byte, error)

	// Add adds delta to a key's value, a number in decimal text, and returns the
	// sum. A missing key counts as zero.
	Add(ctx context.Context, key string, delta int64) (int64, error)

	// CompareAndSet sets a key to desired if its value equals expected, or if the key
	// is missing and expected is empty. It returns the key's value afterwards. If
	// the key is missing and expected is not empty, nothing is set and the result is
	// expected, as in PyTorch; the result alone does not show this case.
	CompareAndSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error)

	// Wait waits until all keys exist. The name of a queue exists while the queue
	// holds a value.
	Wait(ctx context.Context, keys ...string) error

	// Check reports whether all keys exist.
	Check(ctx context.Context, keys ...string) (bool, error)

	// Append appends to a key's value. A missing key counts as empty.
	Append(ctx context.Context, key string, value []byte) error

	// Delete removes a key and reports whether it existed.
	Delete(ctx context.Context, key string) (bool, error)

	// MultiGet waits until all keys exist and returns their values.
	MultiGet(ctx context.Context, keys ...string) ([][]byte, error)

	// MultiSet sets several keys, one after the other.
	MultiSet(ctx context.Context, pairs ...Pair) error

	// List returns the keys, in no order. It leaves out the queues.
	List(ctx context.Context) ([]string, error)

	// NumKeys returns the number of keys in the whole store. Prefixes do not matter,
	// and the store's own keys count.
	NumKeys(ctx context.Context) (int64, error)

	// Barrier waits until n calls with the same key have been made. The key counts
	// the calls, so each barrier needs a key of its own, and further calls return at
	// once. A call whose context ends stays counted.
	Barrier(ctx context.Context, key string, n int) error

	// Push appends a value to a queue. Queues and keys are separate.
	Push(ctx context.Context, key string, value []byte) error

	// Pop waits until the queue holds a value, and takes the first one. A server that
	// has woken another client for the value, which then does not take it, wakes
	// the next Pop after a second at the latest.
	Pop(ctx context.Context, key string) ([]byte, error)

	// TryPop takes the first value of a queue. If the queue is empty, the error
	// matches ErrEmpty.
	TryPop(ctx context.Context, key string) ([]byte, error)

	// QueueLen returns the number of values in a queue.
	QueueLen(ctx context.Context, key string) (int64, error)
}

// A Pair is a key and its value.
type Pair struct {
	Key   string
	Value []byte
}

// userPrefix begins every user's key on the wire, as in PyTorch. The store's own keys
// do not have it.
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
