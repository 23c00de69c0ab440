package job

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/tutti-go/tutti/internal/segment"
)

// rankInfo is the data that a rank sends to all other ranks when it joins. A job of n ranks sends
// n*n of them, so they are kept small.
type rankInfo struct {
	addrs    []string // of the rank's data listener
	network  hint     // of the network namespace and its kernel
	host     hint     // of the host for shared memory; the zero value: the rank shares no memory
	listener []byte   // address of the rank's segment.Listener
	// identity lets other ranks check that they can read this process's memory. Nil: the rank
	// shares no memory.
	identity *segment.ProcessIdentity
	cpus     []byte            // the CPUs that this process may use; see affinity.Mask
	options  map[string]string // Config.Options
}

// rankInfoFormat must change with the encoding of rankInfo.
const rankInfoFormat = "addrs network host listener pid addr mark cores alike"

// hintBytes is the number of bytes of a hint's digest.
const hintBytes = 12

// A hint is a digest of a text. Ranks compare their hints for equality.
type hint struct {
	fields byte // number of words in the text
	sum    [hintBytes]byte
}

// newHint returns the hint of a text. White space between its words does not matter.
func newHint(text string) (h hint) {
	words := strings.Fields(text)
	sum := sha256.Sum256([]byte(strings.Join(words, " ")))
	h.fields = byte(len(words))
	copy(h.sum[:], sum[:])
	return h
}

// networkHint returns the hint of segment.HostHint.
func networkHint() hint { return newHint(segment.HostHint()) }

// hostHint returns the hint of this host and Config.Host.
func hostHint(name string) hint {
	h := newHint(name + "\x00" + segment.HostHint())
	h.fields = 1 // distinguishes it from the zero value
	return h
}

// encode encodes the info. Before each field of variable size stands its length, and before each list
// the number of its elements.
func (c *rankInfo) encode() (b []byte) {
	put := func(field []byte) { b = append(binary.AppendUvarint(b, uint64(len(field))), field...) }
	b = binary.AppendUvarint(b, uint64(len(c.addrs)))
	for _, a := range c.addrs {
		put([]byte(a))
	}
	for _, h := range []hint{c.network, c.host} {
		b = append(append(b, h.fields), h.sum[:]...)
	}
	put(c.listener)
	identity := c.identity
	if identity == nil {
		identity = new(segment.ProcessIdentity)
	}
	b = binary.AppendUvarint(b, uint64(identity.PID))
	b = binary.AppendUvarint(b, identity.Addr)
	put(identity.Nonce)
	put(c.cpus)
	b = binary.AppendUvarint(b, uint64(len(c.options)))
	for _, name := range slices.Sorted(maps.Keys(c.options)) {
		put([]byte(name))
		put([]byte(c.options[name]))
	}
	return b
}

var errRankInfo = errors.New("its encoding is another one")

// decodeRankInfo decodes the result of encode, which comes from another rank. It returns errRankInfo if the
// bytes are truncated, too long or invalid, and allocates no more than they hold.
func decodeRankInfo(b []byte) (c rankInfo, err error) {
	number := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			err, b = errRankInfo, nil
			return 0
		}
		b = b[n:]
		return v
	}
	take := func(n uint64) []byte {
		if n > uint64(len(b)) {
			err, b = errRankInfo, nil
			return nil
		}
		field := b[:n:n]
		b = b[n:]
		return field
	}
	field := func() []byte { return take(number()) }
	for n := number(); n > 0 && err == nil; n-- {
		c.addrs = append(c.addrs, string(field()))
	}
	for _, h := range []*hint{&c.network, &c.host} {
		if text := take(1 + hintBytes); err == nil {
			h.fields, h.sum = text[0], [hintBytes]byte(text[1:])
		}
	}
	c.listener = field()
	identity := &segment.ProcessIdentity{PID: int(number()), Addr: number(), Nonce: field()}
	if c.host != (hint{}) {
		c.identity = identity
	}
	c.cpus = field()
	for n := number(); n > 0 && err == nil; n-- {
		if c.options == nil {
			c.options = make(map[string]string)
		}
		name := string(field())
		c.options[name] = string(field())
	}
	if err == nil && len(b) > 0 {
		err = errRankInfo
	}
	return c, err
}
