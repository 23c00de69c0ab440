package store

import (
	"bufio"
	"encoding/binary"
	"io"
)

// A request is one decoded request. It owns its slices.
type request struct {
	id     id
	keys   []string // exactly one, unless the request has a list of keys
	values [][]byte
	number int64  // of ADD and BARRIER
	word   uint32 // of VALIDATE and PING
}

// A decoder reads requests from a client that is not trusted. It allocates only for
// bytes that have arrived, and only as much as the budget allows. The session's
// reading goroutine uses it.
type decoder struct {
	r      *bufio.Reader
	limits *Limits
	budget *budget
	taken  int64 // bytes taken from budget for the current request
}

// done returns the current request's bytes to the budget.
func (d *decoder) done() {
	d.budget.release(d.taken)
	d.taken = 0
}

// read reads the rest of a request whose first byte has been read.
func (d *decoder) read(req *request) error {
	switch req.id {
	case idNumKeys, idCancelWait, idList:
		return nil
	case idValidate, idPing:
		var b [4]byte
		_, err := io.ReadFull(d.r, b[:])
		req.word = binary.LittleEndian.Uint32(b[:])
		return err
	case idCheck, idWait, idMultiGet:
		return d.list(req, 0)
	case idMultiSet:
		return d.list(req, 1)
	case idGet, idDelete, idPop, idQueueLen:
		return d.entry(req, 0)
	case idSet, idAppend, idPush:
		return d.entry(req, 1)
	case idCompareSet:
		return d.entry(req, 2)
	case idAdd, idBarrier:
		if err := d.entry(req, 0); err != nil {
			return err
		}
		n, err := d.number()
		req.number = int64(n)
		return err
	}
	return kindf(ErrAnswer, "it sent %v, which is not known here", req.id)
}

// entry reads a key and the given number of values.
func (d *decoder) entry(req *request, values int) error {
	key, err := d.bytes(d.limits.KeyBytes, "key")
	if err != nil {
		return err
	}
	req.keys = append(req.keys, string(key))
	for range values {
		v, err := d.bytes(d.limits.ValueBytes, "value")
		if err != nil {
			return err
		}
		req.values = append(req.values, v)
	}
	return nil
}

// list reads a count and as many entries.
func (d *decoder) list(req *request, values int) error {
	n, err := d.number()
	if err != nil {
		return err
	}
	if n > uint64(d.limits.Keys) {
		return kindf(ErrLimit, "it sent %v with %d keys; %d are allowed", req.id, n, d.limits.Keys)
	}
	for range n {
		if err := d.entry(req, values); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) number() (uint64, error) {
	var b [8]byte
	_, err := io.ReadFull(d.r, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

// bytes reads a key or a value of at most most bytes.
func (d *decoder) bytes(most int, what string) ([]byte, error) {
	n, err := d.number()
	if err != nil {
		return nil, err
	}
	if n > uint64(most) {
		return nil, kindf(ErrLimit, "it sent a %s of %d bytes; %d are allowed", what, n, most)
	}
	take := func(n int64) error {
		if err := d.budget.take(n); err != nil {
			return err
		}
		d.taken += n
		return nil
	}
	if err := take(entryBytes); err != nil {
		return nil, err
	}
	return readPieces(d.r, int(n), take)
}

// readPieces reads n bytes. It calls take before it allocates each piece, so a client
// that sends only a large length costs no memory.
func readPieces(r io.Reader, n int, take func(int64) error) ([]byte, error) {
	const piece = 64 << 10
	var b []byte
	for len(b) < n {
		// The buffer doubles, so that each byte is copied about once.
		more := min(n-len(b), max(piece, len(b)))
		if err := take(int64(more)); err != nil {
			return nil, err
		}
		begin := len(b)
		grown := make([]byte, begin+more)
		copy(grown, b)
		if _, err := io.ReadFull(r, grown[begin:]); err != nil {
			return nil, err
		}
		b = grown
	}
	if b == nil {
		b = []byte{}
	}
	return b, nil
}
