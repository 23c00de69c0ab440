package store

import "context"

// Prefix returns a view of s with only the keys that begin with prefix and a slash,
// as PyTorch's PrefixStore does. The view owns nothing: the caller closes s.
func Prefix(s Store, prefix string) Store { return &prefixed{s, prefix + "/"} }

// A prefixed adds prefix to every key of s.
type prefixed struct {
	s      Store
	prefix string
}

func (p *prefixed) keys(keys []string) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = p.prefix + k
	}
	return out
}

func (p *prefixed) Set(ctx context.Context, key string, value []byte) error {
	return p.s.Set(ctx, p.prefix+key, value)
}

func (p *prefixed) Get(ctx context.Context, key string) ([]byte, error) {
	return p.s.Get(ctx, p.prefix+key)
}

func (p *prefixed) Add(ctx context.Context, key string, delta int64) (int64, error) {
	return p.s.Add(ctx, p.prefix+key, delta)
}

func (p *prefixed) CompareAndSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	return p.s.CompareAndSet(ctx, p.prefix+key, expected, desired)
}

func (p *prefixed) Wait(ctx context.Context, keys ...string) error {
	return p.s.Wait(ctx, p.keys(keys)...)
}

func (p *prefixed) Check(ctx context.Context, keys ...string) (bool, error) {
	return p.s.Check(ctx, p.keys(keys)...)
}

func (p *prefixed) Append(ctx context.Context, key string, value []byte) error {
	return p.s.Append(ctx, p.prefix+key, value)
}

func (p *prefixed) Delete(ctx context.Context, key string) (bool, error) {
	return p.s.Delete(ctx, p.prefix+key)
}

func (p *prefixed) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	return p.s.MultiGet(ctx, p.keys(keys)...)
}

func (p *prefixed) MultiSet(ctx context.Context, pairs ...Pair) error {
	out := make([]Pair, len(pairs))
	for i, pair := range pairs {
		out[i] = Pair{p.prefix + pair.Key, pair.Value}
	}
	return p.s.MultiSet(ctx, out...)
}

func (p *prefixed) List(ctx context.Context) ([]string, error) {
	keys, err := p.s.List(ctx)
	return within(keys, p.prefix), err
}

func (p *prefixed) NumKeys(ctx context.Context) (int64, error) { return p.s.NumKeys(ctx) }

func (p *prefixed) Barrier(ctx context.Context, key string, n int) error {
	return p.s.Barrier(ctx, p.prefix+key, n)
}

func (p *prefixed) Push(ctx context.Context, key string, value []byte) error {
	return p.s.Push(ctx, p.prefix+key, value)
}

func (p *prefixed) Pop(ctx context.Context, key string) ([]byte, error) {
	return p.s.Pop(ctx, p.prefix+key)
}

func (p *prefixed) TryPop(ctx context.Context, key string) ([]byte, error) {
	return p.s.TryPop(ctx, p.prefix+key)
}

func (p *prefixed) QueueLen(ctx context.Context, key string) (int64, error) {
	return p.s.QueueLen(ctx, p.prefix+key)
}
