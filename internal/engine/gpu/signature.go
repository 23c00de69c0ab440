package gpu

import "github.com/tutti-go/tutti/internal/engine"

// signature returns a hash of calls: of the verbs, types, operators, roots, counts and names, and of
// the kind of memory. It is not zero.
func signature(calls []engine.Call) uint64 {
	h := engine.HashStart.Uint64(uint64(len(calls)))
	for i := range calls {
		c := &calls[i]
		s := c.Sig()
		where, form := uint64(0), uint64(0)
		if c.OnDevice() {
			where = 1
		}
		if s.Uneven {
			form = 1
		}
		h = h.Uint64(uint64(s.Verb) | uint64(s.Type)<<8 | uint64(s.Red)<<16 | form<<24 | uint64(uint32(s.Root))<<32)
		h = h.Uint64(uint64(s.Count)).Uint64(s.Name).Uint64(where)
	}
	return h.NonZero()
}

// signature returns the signature of calls if a comparison of signatures suffices for the ranks to
// agree on them ahead of their turn, and zero otherwise.
func (e *Engine) signature(calls []engine.Call) uint64 {
	for i := range calls {
		if !calls[i].OnDevice() || calls[i].Uneven || e.stage != nil {
			return 0
		}
	}
	return signature(calls)
}

// digestWords is the number of words that describe the next operations of a rank: the signature of
// the next operation; the number of known operations and a hash over all of them; and two 32-bit
// hashes over prefixes, for ranks that know a different number of operations. Three words are the
// most that the CPU engine exchanges in one message.
const digestWords = 3

// prefixLengths are the numbers of operations that the 32-bit hashes cover.
var prefixLengths = [2]int{8, 64}

// digestOf returns the words for an operation with signature first and the operations after it.
func digestOf(first uint64, next []uint64) (m [digestWords]uint64) {
	m[0] = first
	h := first
	for i, s := range next {
		h = (h ^ s) * 0x9e3779b97f4a7c15
		h ^= h >> 29
		for k, n := range prefixLengths {
			if n == i+2 {
				m[2] |= max(h>>32, 1) << (32 * k)
			}
		}
	}
	m[1] = uint64(len(next)+1)<<48 | h>>16
	return m
}

// commonPrefix returns how many of the next operations are equal on all ranks according to
// e.digests, or zero if the first one differs.
func (e *Engine) commonPrefix() int {
	equal := func(word func(r int) uint64) bool {
		for r := range e.size {
			if v := word(r); v == 0 || v != word(0) {
				return false
			}
		}
		return true
	}
	if !equal(func(r int) uint64 { return e.digests[r*digestWords] }) {
		return 0
	}
	if equal(func(r int) uint64 { return e.digests[r*digestWords+1] }) {
		return int(e.digests[1] >> 48)
	}
	for k := len(prefixLengths) - 1; k >= 0; k-- {
		if equal(func(r int) uint64 { return e.digests[r*digestWords+2] << (32 - 32*k) >> 32 }) {
			return prefixLengths[k]
		}
	}
	return 1
}
