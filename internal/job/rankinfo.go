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

// A card is what a rank tells the others of itself when it joins. Every rank gets all
// cards, so a job of n ranks sends n*n of them: they are small.
type rankInfo struct {
	addrs    []string // where its data listener is
	network  hint     // of the network namespace, and the kernel that it is of
	host     hint     // of the host that it shares memory with; the zero value: it shares none
	listener []byte   // where it passes memory; see segment.Fetch
	// sign is how others find out that they can read this process's memory; nil: it
	// shares no memory.
	identity *segment.ProcessIdentity
	cpus     []byte            // the processors that this process may use; see cores.Mask
	options  map[string]string // Config.Alike
}

// cardFormat changes with the encoding of a card.
const rankInfoFormat = "addrs network host listener pid addr mark cores alike"

// hintBytes is how much of a hint's digest is compared.
const hintBytes = 12

// A hint stands for a text of which ranks compare whether they have the same.
type hint struct {
	fields byte // words of the text
	sum    [hintBytes]byte
}

func newHint(text string) (h hint) {
	words := strings.Fields(text)
	sum := sha256.Sum256([]byte(strings.Join(words, " ")))
	h.fields = byte(len(words))
	copy(h.sum[:], sum[:])
	return h
}

// networkHint is that of segment.HostHint.
func networkHint() hint { return newHint(segment.HostHint()) }

// hostHint is that of a host, whose ranks give the same name.
func hostHint(name string) hint {
	h := newHint(name + "\x00" + segment.HostHint())
	h.fields = 1 // never the zero value
	return h
}

// encode returns the card as bytes: each field with its length before it, lists with the
// number of their elements.
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
	sign := c.identity
	if sign == nil {
		sign = new(segment.ProcessIdentity)
	}
	b = binary.AppendUvarint(b, uint64(sign.PID))
	b = binary.AppendUvarint(b, sign.Addr)
	put(sign.Nonce)
	put(c.cpus)
	b = binary.AppendUvarint(b, uint64(len(c.options)))
	for _, name := range slices.Sorted(maps.Keys(c.options)) {
		put([]byte(name))
		put([]byte(c.options[name]))
	}
	return b
}

var errRankInfo = errors.New("its card has another form")

// decodeCard reads what encode has written.
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
	sign := &segment.ProcessIdentity{PID: int(number()), Addr: number(), Nonce: field()}
	if c.host != (hint{}) {
		c.identity = sign
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
