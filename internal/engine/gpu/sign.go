package gpu

import "github.com/tutti-go/tutti/internal/engine"

// sign is a hash of calls.
func sign(calls []engine.Call) uint64 {
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

// Sign is zero where ranks have more to tell each other than that they agree.
func (e *Engine) Sign(calls []engine.Call) uint64 {
	for i := range calls {
		if !calls[i].OnDevice() || calls[i].Uneven || e.stage != nil {
			return 0
		}
	}
	return sign(calls)
}

// marks is how many numbers tell what a rank is about to do: a hash of its next
// operation, one of all that it knows of and how many they are, and halves that are
// hashes of its next few, for ranks that know of more or less. These three are as much
// as the CPU engine's ranks tell each other in one go.
const marks = 3

// reach is how many operations the halves speak of.
var reach = [2]int{8, 64}

// marksOf are the marks of a rank that is about to do this operation and then those.
func marksOf(first uint64, next []uint64) (m [marks]uint64) {
	m[0] = first
	h := first
	for i, s := range next {
		h = (h ^ s) * 0x9e3779b97f4a7c15
		h ^= h >> 29
		for k, n := range reach {
			if n == i+2 {
				m[2] |= max(h>>32, 1) << (32 * k)
			}
		}
	}
	m[1] = uint64(len(next)+1)<<48 | h>>16
	return m
}

// common is how many operations are the next on all ranks, as their marks tell; zero
// if already the first is not.
func (e *Engine) common() int {
	alike := func(mark func(r int) uint64) bool {
		for r := range e.size {
			if v := mark(r); v == 0 || v != mark(0) {
				return false
			}
		}
		return true
	}
	if !alike(func(r int) uint64 { return e.all[r*marks] }) {
		return 0
	}
	if alike(func(r int) uint64 { return e.all[r*marks+1] }) {
		return int(e.all[1] >> 48)
	}
	for k := len(reach) - 1; k >= 0; k-- {
		if alike(func(r int) uint64 { return e.all[r*marks+2] << (32 - 32*k) >> 32 }) {
			return reach[k]
		}
	}
	return 1
}
