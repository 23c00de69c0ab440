package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
)

// A call is one method call on one connection of a Client: begin, then send and
// receive, then end. One goroutine uses it. After the first error the later steps
// do nothing, and end reports that error.
type call struct {
	c    *Client
	ctx  context.Context
	op   string      // the method's name, for the error
	key  string      // the first key, for the error
	link *clientConn // nil: begin failed
	err  error       // the first error
	bad  bool        // bytes may be left on the connection: it must not be used again
}

// begin checks the keys and values against the limits and takes a connection.
func (c *Client) begin(ctx context.Context, op string, keys []string, values ...[]byte) *call {
	k := &call{c: c, ctx: ctx, op: op, key: first(keys)}
	if k.err = ctx.Err(); k.err == nil {
		k.err = c.config.Limits.checkRequest(keys, values)
	}
	if k.err == nil {
		k.link, k.err = c.take(ctx)
	}
	return k
}

// send writes a request: its id and the encoded body.
func (k *call) send(id id, body []byte) {
	if k.err == nil {
		k.failed(k.link.whileOpen(k.ctx, func() error {
			_, err := k.link.conn.Write(append([]byte{byte(id)}, body...))
			return err
		}))
	}
}

// change sends a request that has no answer, followed by a PING. The answer to the
// PING proves that the server has applied the change. Without it a change could be
// lost unnoticed, or take effect after a later change by another client.
func (k *call) change(id id, body []byte) error {
	nonce := rand.Uint32()
	k.send(id, binary.LittleEndian.AppendUint32(append(body, byte(idPing)), nonce))
	k.pong(nonce)
	return k.end()
}

// pong reads the answer to a PING and compares the nonce.
func (k *call) pong(nonce uint32) {
	k.receive(func(l *clientConn) error {
		var got uint32
		if err := binary.Read(l.in, binary.LittleEndian, &got); err != nil || got == nonce {
			return err
		}
		return kindf(ErrAnswer, "it answered a PING with something else")
	})
}

// receive reads an answer with f.
func (k *call) receive(f func(*clientConn) error) {
	if k.err == nil {
		k.failed(k.link.whileOpen(k.ctx, func() error { return f(k.link) }))
	}
}

// failed records the call's error. The connection may hold part of a request or an
// answer, so it is marked as unusable.
func (k *call) failed(err error) {
	if err == nil {
		return
	}
	k.bad = true
	switch {
	case k.ctx.Err() != nil && errors.Is(err, k.ctx.Err()), errors.Is(err, ErrAnswer):
		k.err = err
	default:
		k.err = &kindError{ErrLost, "the store ended the connection; its log may say why (" + err.Error() + ")", err}
	}
}

// wait sends a request that the server answers only when its keys exist, and waits
// for the answer or the end of the context.
func (k *call) wait(id id, body []byte) {
	k.send(id, body)
	if k.err != nil {
		return
	}
	usable, err := k.link.readWaitAnswer(k.ctx)
	k.failed(err)
	if err != nil && errors.Is(k.err, k.ctx.Err()) {
		k.err = fmt.Errorf("a key that it waits for is not set: %w", k.err)
	}
	k.bad = !usable
}

// end returns the connection to the client and returns the call's error.
func (k *call) end() error {
	if k.link != nil {
		k.c.put(k.link, !k.bad)
	}
	if k.err == nil {
		return nil
	}
	k.c.mu.Lock()
	closed := k.c.closed
	k.c.mu.Unlock()
	if closed && errors.Is(k.err, ErrLost) {
		k.err = ErrClosed
	}
	return &Error{Op: k.op, Key: k.key, Addr: k.c.addr, Cause: k.err}
}

// number is a call whose answer is one number.
func (c *Client) number(ctx context.Context, op string, id id, keys []string, body []byte) (n int64, err error) {
	k := c.begin(ctx, op, keys)
	k.send(id, body)
	k.receive(func(l *clientConn) (err error) {
		n, err = l.number()
		return err
	})
	return n, k.end()
}

// keyBody encodes a user's key.
func keyBody(key string) []byte { return appendBytes(nil, userPrefix+key) }

// Set implements [Store].
func (c *Client) Set(ctx context.Context, key string, value []byte) error {
	return c.begin(ctx, "Set", []string{key}, value).change(idSet, appendBytes(keyBody(key), value))
}

// Get implements [Store].
func (c *Client) Get(ctx context.Context, key string) (value []byte, err error) {
	k := c.begin(ctx, "Get", []string{key})
	k.wait(idWait, appendKeys(nil, []string{userPrefix + key}))
	k.send(idGet, keyBody(key))
	k.receive(func(l *clientConn) (err error) {
		value, err = l.value(l.limits.ValueBytes)
		return err
	})
	return value, k.end()
}

// Add implements [Store].
func (c *Client) Add(ctx context.Context, key string, delta int64) (int64, error) {
	return c.number(ctx, "Add", idAdd, []string{key}, appendNumber(keyBody(key), delta))
}

// CountIn registers this process as a member of a PyTorch job and returns the
// number of members registered so far. A PyTorch server that has the number of
// members among its options waits until all of them are registered.
func (c *Client) CountIn(ctx context.Context) (int64, error) {
	return c.number(ctx, "CountIn", idAdd, nil, appendNumber(appendBytes(nil, memberKey), int64(1)))
}

// Members returns how many processes have called [Client.CountIn].
func (c *Client) Members(ctx context.Context) (int64, error) {
	return c.number(ctx, "Members", idAdd, nil, appendNumber(appendBytes(nil, memberKey), int64(0)))
}

// Ping sends a request to the server and waits for the answer.
func (c *Client) Ping(ctx context.Context) error {
	nonce := rand.Uint32()
	k := c.begin(ctx, "Ping", nil)
	k.send(idPing, binary.LittleEndian.AppendUint32(nil, nonce))
	k.pong(nonce)
	return k.end()
}

// CompareAndSet implements [Store].
func (c *Client) CompareAndSet(ctx context.Context, key string, expected, desired []byte) (value []byte, err error) {
	k := c.begin(ctx, "CompareAndSet", []string{key}, expected, desired)
	k.send(idCompareSet, appendBytes(appendBytes(keyBody(key), expected), desired))
	k.receive(func(l *clientConn) (err error) {
		value, err = l.value(l.limits.ValueBytes)
		return err
	})
	return value, k.end()
}

// Wait implements [Store].
func (c *Client) Wait(ctx context.Context, keys ...string) error {
	k := c.begin(ctx, "Wait", keys)
	k.wait(idWait, appendKeys(nil, userKeys(keys)))
	return k.end()
}

// Check implements [Store].
func (c *Client) Check(ctx context.Context, keys ...string) (there bool, err error) {
	k := c.begin(ctx, "Check", keys)
	k.send(idCheck, appendKeys(nil, userKeys(keys)))
	k.receive(func(l *clientConn) error {
		b, err := l.in.ReadByte()
		if err == nil && b > answerNotReady {
			err = kindf(ErrAnswer, "it answered a CHECK with %d", b)
		}
		there = err == nil && b == answerReady
		return err
	})
	return there, k.end()
}

// Append implements [Store].
func (c *Client) Append(ctx context.Context, key string, value []byte) error {
	return c.begin(ctx, "Append", []string{key}, value).change(idAppend, appendBytes(keyBody(key), value))
}

// Delete implements [Store].
func (c *Client) Delete(ctx context.Context, key string) (bool, error) {
	n, err := c.number(ctx, "Delete", idDelete, []string{key}, keyBody(key))
	return n > 0, err
}

// MultiGet implements [Store].
func (c *Client) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	k := c.begin(ctx, "MultiGet", keys)
	body := appendKeys(nil, userKeys(keys))
	k.wait(idWait, body)
	k.send(idMultiGet, body)
	values := make([][]byte, 0, len(keys))
	k.receive(func(l *clientConn) error {
		for range keys {
			v, err := l.value(l.limits.ValueBytes)
			if err != nil {
				return err
			}
			values = append(values, v)
		}
		return nil
	})
	if err := k.end(); err != nil {
		return nil, err
	}
	return values, nil
}

// MultiSet implements [Store].
func (c *Client) MultiSet(ctx context.Context, pairs ...Pair) error {
	keys, values := make([]string, len(pairs)), make([][]byte, len(pairs))
	body := appendNumber(nil, uint64(len(pairs)))
	for i, p := range pairs {
		keys[i], values[i] = p.Key, p.Value
		body = appendBytes(appendBytes(body, userPrefix+p.Key), p.Value)
	}
	k := c.begin(ctx, "MultiSet", keys, values...)
	return k.change(idMultiSet, body)
}

// List implements [Store]. PyTorch's own server supports it since about 2.10; an
// older one ends the connection.
func (c *Client) List(ctx context.Context) ([]string, error) {
	k := c.begin(ctx, "List", nil)
	k.send(idList, nil)
	var keys []string
	k.receive(func(l *clientConn) error {
		n, err := l.number()
		if err == nil && uint64(n) > uint64(l.limits.Keys) {
			err = kindf(ErrAnswer, "it says that it has %d keys", uint64(n))
		}
		for ; err == nil && n > 0; n-- {
			var key []byte
			key, err = l.value(l.limits.KeyBytes)
			keys = append(keys, string(key))
		}
		return err
	})
	if err := k.end(); err != nil {
		return nil, err
	}
	return within(keys, userPrefix), nil
}

// NumKeys implements [Store].
func (c *Client) NumKeys(ctx context.Context) (int64, error) {
	return c.number(ctx, "NumKeys", idNumKeys, nil, nil)
}

// Barrier implements [Store]. PyTorch's own server does not support it up to 2.11
// and ends the connection.
func (c *Client) Barrier(ctx context.Context, key string, n int) error {
	k := c.begin(ctx, "Barrier", []string{key})
	k.wait(idBarrier, appendNumber(keyBody(key), int64(n)))
	return k.end()
}

// Push implements [Store].
func (c *Client) Push(ctx context.Context, key string, value []byte) error {
	return c.begin(ctx, "Push", []string{key}, value).change(idPush, appendBytes(keyBody(key), value))
}

// Pop implements [Store].
func (c *Client) Pop(ctx context.Context, key string) ([]byte, error) {
	return popLoop(ctx, func() ([]byte, error) {
		k := c.begin(ctx, "Pop", []string{key})
		k.wait(idWait, appendKeys(nil, []string{userPrefix + key}))
		return k.pop(key)
	})
}

// TryPop implements [Store].
func (c *Client) TryPop(ctx context.Context, key string) ([]byte, error) {
	return c.begin(ctx, "TryPop", []string{key}).pop(key)
}

// pop sends a QUEUE_POP. An empty queue is ErrEmpty.
func (k *call) pop(key string) (value []byte, err error) {
	k.send(idPop, keyBody(key))
	k.receive(func(l *clientConn) error {
		n, err := l.number()
		if err == nil && n > 0 {
			value, err = l.value(l.limits.ValueBytes)
		} else if err == nil {
			k.err = ErrEmpty
		}
		return err
	})
	return value, k.end()
}

// QueueLen implements [Store].
func (c *Client) QueueLen(ctx context.Context, key string) (int64, error) {
	return c.number(ctx, "QueueLen", idQueueLen, []string{key}, keyBody(key))
}
