package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// A Farewell is what a rank that leaves a group tells the others of why: the
// group's failure, as far as there is room. The zero Farewell says nothing. Who
// needs the rank takes that as the cause, and not that it has left: rank 0, which
// knows what came first, may be out of reach.
type Farewell [120]byte

// The layout: kind, two flags, the number of ranks lost and, in the upper half of
// that byte, of those lost above, the length of the operation's name; rank, its
// number; then the ranks lost, those lost above, as far as there is room, the
// operation's name, and the reason, up to a zero byte or the end.
const (
	farewellHead = 16
	mostLost     = 4
)

// farewellKinds are the kinds by which a group can end, by number from one.
var farewellKinds = [...]error{
	ErrRankLost, ErrTimeout, ErrMismatch, ErrAborted, ErrClosed, ErrUnsupported, ErrCorrupt, ErrNoDevicePath,
}

// NewFarewell is the farewell of a rank whose group has failed, or has not if f
// is nil.
func NewFarewell(f *Failure) (w Farewell) {
	if f == nil {
		return w
	}
	kind := slices.IndexFunc(farewellKinds[:], func(k error) bool { return errors.Is(f.Kind, k) })
	if kind < 0 || len(f.Lost) > mostLost {
		return w
	}
	above := f.Above[:min(len(f.Above), mostLost-len(f.Lost))]
	w[0], w[2], w[3] = byte(1+kind), byte(len(f.Lost)|len(above)<<4), byte(min(len(f.Op), 32))
	if f.Told {
		w[1] |= 1
	}
	if f.Left {
		w[1] |= 2
	}
	binary.LittleEndian.PutUint32(w[4:], uint32(f.Rank))
	binary.LittleEndian.PutUint64(w[8:], f.Seq)
	rest := w[farewellHead:]
	for _, r := range slices.Concat(f.Lost, above) {
		binary.LittleEndian.PutUint32(rest, uint32(r))
		rest = rest[4:]
	}
	rest = rest[copy(rest, f.Op[:w[3]]):]
	if n := copy(rest, f.Reason); n < len(f.Reason) {
		const more = "..."
		for n -= len(more); n > 0 && !utf8.RuneStart(f.Reason[n]); n-- {
			rest[n] = 0
		}
		clear(rest[n+copy(rest[n:], more):])
	}
	return w
}

// Failure is what a farewell says in a group of so many ranks, nil if that is
// nothing, or makes no sense. A group that stands on its own finds out what came
// first, and all of what was said; one that is a part of another takes it as it
// is, because it may be in the numbers of that.
func (w *Farewell) Failure(size int, whole bool) *Failure {
	kind, lost, above, op := int(w[0]), int(w[2]&15), int(w[2]>>4), int(w[3])
	if kind < 1 || kind > len(farewellKinds) || lost+above > mostLost {
		return nil
	}
	f := &Failure{
		Kind: farewellKinds[kind-1], Told: w[1]&1 != 0 && !whole, Left: w[1]&2 != 0,
		Rank: int(binary.LittleEndian.Uint32(w[4:])), Seq: binary.LittleEndian.Uint64(w[8:]),
	}
	rest := w[farewellHead:]
	for i := range lost + above {
		to := &f.Lost
		if i >= lost {
			to = &f.Above
		}
		*to = append(*to, int(binary.LittleEndian.Uint32(rest)))
		rest = rest[4:]
	}
	wrong := func(r int) bool { return r >= size && !f.Told }
	if wrong(f.Rank) || slices.ContainsFunc(f.Lost, wrong) || op > len(rest) {
		return nil
	}
	f.Op, rest = string(rest[:op]), rest[op:]
	if end := slices.Index(rest, 0); end >= 0 {
		rest = rest[:end]
	}
	f.Reason = string(rest)
	if f.Reason == "" || !utf8.ValidString(f.Op+f.Reason) {
		return nil
	}
	return f
}

// Excuse is why a rank leaves a group that is well: because another of its
// groups has failed. Both groups are lists of ranks in the same numbers, and rank
// is the one in this group. It is nil if nothing has.
func Excuse(f *Failure, failed, group []int, rank int) *Failure {
	if f == nil {
		return nil
	}
	x := &Failure{Kind: ErrRankLost, Rank: rank}
	for _, r := range f.Lost {
		if i := slices.Index(group, failed[r]); i >= 0 && !f.Left {
			x.Lost = append(x.Lost, i)
		}
	}
	if x.Lost != nil {
		x.Reason = fmt.Sprintf("%s lost, as rank %d found in another group", isOrAre(x.Lost), rank)
		return x
	}
	x.Lost, x.Left = []int{rank}, true
	x.Reason = fmt.Sprintf("rank %d has left after another group's end: %v", rank, f)
	return x
}

func isOrAre(ranks []int) string {
	if len(ranks) == 1 {
		return Ranks(ranks) + " is"
	}
	return Ranks(ranks) + " are"
}
