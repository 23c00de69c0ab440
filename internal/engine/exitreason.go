package engine

import (
	"encoding/binary"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/tutti-go/tutti/internal/kernel"
)

// An ExitReason is what a rank that leaves a group tells the others of why: the
// group's failure, as far as there is room. The zero ExitReason says nothing. A rank
// that needs the one that has left takes that as the cause, and not that it has
// left: rank 0, which knows what came first, may be out of reach.
type ExitReason [120]byte

// The layout: kind, two flags, the number of ranks lost and, in the upper half of
// that byte, of those lost above, the length of the operation's name; rank, its
// number; then the ranks lost, those lost above, as far as there is room, the
// operation's name, the event, and facts up to a zero byte or the end. A fact is
// its name, the length of what follows, both one byte, and that. Facts for which
// there is no room are left out, and texts are cut.
const (
	exitReasonHead = 16
	mostLost       = 4
)

// The names of facts in a ExitReason.
const (
	factEnd = iota
	factLoss
	factLimit
	factTag
	factWait
	factSide
	factRanks
	factUnheard
	factBehind
	factRelay
	factDevice
	factCause
	factText
	factLast
)

// farewellOp is how many bytes of an operation's name a ExitReason holds.
const farewellOp = 32

// NewExitReason returns the exit reason of a rank whose group has failed, or has not if f
// is nil.
func NewExitReason(f *Failure) (w ExitReason) {
	if f == nil {
		return w
	}
	kind := kindIndex(f.Kind)
	if kind < 0 || len(f.Lost) > mostLost {
		return w
	}
	above := f.Above[:min(len(f.Above), mostLost-len(f.Lost))]
	w[0], w[2], w[3] = byte(1+kind), byte(len(f.Lost)|len(above)<<4), byte(min(len(f.Op), farewellOp))
	if f.Told {
		w[1] |= 1
	}
	if f.Left {
		w[1] |= 2
	}
	binary.LittleEndian.PutUint32(w[4:], uint32(f.Rank))
	binary.LittleEndian.PutUint64(w[8:], f.Seq)
	rest := w[exitReasonHead:]
	for _, r := range slices.Concat(f.Lost, above) {
		binary.LittleEndian.PutUint32(rest, uint32(r))
		rest = rest[4:]
	}
	rest = rest[copy(rest, f.Op[:w[3]]):]
	copy(rest, f.packFacts(len(rest)))
	return w
}

// Failure is what an exit reason says in a group of so many ranks, nil if that is
// nothing, or makes no sense. A group that stands on its own finds out what came
// first, and all of what was said; one that is a part of another takes it as it
// is, because it may be in the numbers of that.
func (w *ExitReason) Failure(size int, whole bool) *Failure {
	kind, lost, above, op := int(w[0]), int(w[2]&15), int(w[2]>>4), int(w[3])
	if kind < 1 || kind > len(travelKinds) || lost+above > mostLost {
		return nil
	}
	f := &Failure{
		Kind: travelKinds[kind-1].kind, Told: w[1]&1 != 0 && !whole, Left: w[1]&2 != 0,
		Rank: int(binary.LittleEndian.Uint32(w[4:])), Seq: binary.LittleEndian.Uint64(w[8:]),
	}
	rest := w[exitReasonHead:]
	for i := range lost + above {
		to := &f.Lost
		if i >= lost {
			to = &f.Above
		}
		*to = append(*to, int(binary.LittleEndian.Uint32(rest)))
		rest = rest[4:]
	}
	wrong := func(r int) bool { return r >= size && !f.Told }
	if wrong(f.Rank) || slices.ContainsFunc(f.Lost, wrong) || op >= len(rest) || !utf8.Valid(rest[:op]) {
		return nil
	}
	f.Op, rest = string(rest[:op]), rest[op:]
	if !f.unpackFacts(rest) || f.Event == Described && f.Text == "" {
		return nil
	}
	return f
}

// A packer writes facts into a number of bytes.
type packer struct {
	to   []byte
	room int
}

// add writes a fact, and reports whether there was room.
func (p *packer) add(name byte, fact []byte) bool {
	if len(fact) > math.MaxUint8 || len(p.to)+2+len(fact) > p.room {
		return false
	}
	p.to = append(append(p.to, name, byte(len(fact))), fact...)
	return true
}

// addText writes a text, cut if there is too little room.
func (p *packer) addText(name byte, text string) {
	const more = "..."
	room := min(p.room-len(p.to)-2, math.MaxUint8)
	if text == "" || room <= len(more) {
		return
	}
	if len(text) > room {
		n := room - len(more)
		for n > 0 && !utf8.RuneStart(text[n]) {
			n--
		}
		text = text[:n] + more
	}
	p.add(name, []byte(text))
}

// addSide writes a side with as much of the call's name as there is room for.
func (p *packer) addSide(name byte, s *Side, room int) {
	fact := packSide(s)
	room = min(room, p.room-len(p.to)) - 2
	if n := len(fact) - len(s.Call.Name); room >= n {
		p.add(name, fact[:n+len(validPrefix(fact[n:min(len(fact), room)]))])
	}
}

func (p *packer) addRanks(name byte, list []int) {
	if len(list) > 0 {
		p.add(name, packRanks(nil, list))
	}
}

// packFacts writes facts into at most so many bytes, those first without which a
// text makes no sense.
func (f *Failure) packFacts(room int) []byte {
	if room < 1 {
		return nil
	}
	p := packer{append(make([]byte, 0, room), byte(f.Event)), room}
	if f.Loss != "" {
		p.addText(factLoss, string(f.Loss))
	}
	if f.Limit != 0 {
		p.add(factLimit, binary.AppendUvarint(nil, uint64(f.Limit)))
	}
	if f.Tag != 0 {
		p.add(factTag, binary.AppendVarint(nil, int64(f.Tag)))
	}
	w := &f.Wait
	if w.Phase != PhaseUnknown {
		fact := []byte{byte(w.Phase), 0}
		if w.OtherTag != nil {
			fact[1] = 1
			fact = binary.AppendVarint(fact, int64(*w.OtherTag))
		}
		p.add(factWait, packRanks(fact, w.Ranks))
	}
	for i := range f.Sides {
		// Each side has its part of what is left.
		p.addSide(factSide, &f.Sides[i], (p.room-len(p.to))/(len(f.Sides)-i))
	}
	p.addRanks(factRanks, f.Ranks)
	p.addRanks(factUnheard, w.Unheard)
	p.addRanks(factBehind, w.Behind)
	if w.Relay != NoRelay {
		p.add(factRelay, packRanks(binary.AppendUvarint([]byte{byte(w.Relay)}, uint64(w.Leader)), w.Beyond))
	}
	p.addText(factDevice, f.Device)
	if c := f.Cause; c != nil {
		const least = 12 // the facts of a cause without which it says nothing
		if left := p.room - len(p.to) - 2; left > least {
			p.add(factCause, c.pack(min(left, math.MaxUint8)))
		}
	}
	p.addText(factText, f.Text)
	for i := range w.Last {
		p.addSide(factLast, &w.Last[i], p.room)
	}
	return p.to
}

// pack writes a failure into at most so many bytes: kind, flags, number and name of
// the operation, rank, lost ranks, and facts.
func (f *Failure) pack(room int) []byte {
	flags := byte(0)
	if f.Left {
		flags = 2
	}
	b := []byte{byte(1 + kindIndex(f.Kind)), flags}
	b = binary.AppendUvarint(b, f.Seq)
	b = binary.AppendUvarint(b, uint64(f.Rank))
	b = packRanks(b, f.Lost[:min(len(f.Lost), 2*mostLost)])
	op := f.Op[:min(len(f.Op), farewellOp)]
	b = append(append(b, byte(len(op))), op...)
	if len(b) >= room {
		return nil
	}
	return append(b, f.packFacts(room-len(b))...)
}

func packRanks(b []byte, list []int) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, r := range list {
		b = binary.AppendUvarint(b, uint64(r))
	}
	return b
}

// packSide writes a side; the name of its call is at the end.
func packSide(s *Side) []byte {
	b := binary.AppendUvarint(nil, uint64(s.Rank))
	b = binary.AppendVarint(b, s.N)
	b = binary.AppendUvarint(b, s.Step)
	b = append(append(b, byte(len(s.Algorithm))), s.Algorithm...)
	return append(b, packCall(&s.Call)...)
}

// packCall writes a call; its name is at the end.
func packCall(c *CallInfo) []byte {
	form := byte(0)
	for i, set := range [...]bool{c.Fingerprint.Uneven, c.Device, c.Fingerprint.Name != 0} {
		if set {
			form |= 1 << i
		}
	}
	b := []byte{byte(c.Fingerprint.Verb), byte(c.Fingerprint.Type), byte(c.Fingerprint.ReduceOp), form}
	b = binary.AppendUvarint(b, uint64(uint32(c.Fingerprint.Root)))
	b = binary.AppendVarint(b, c.Fingerprint.Count)
	return append(b, c.Name...)
}

// An unpacker reads facts. What is missing reads as zero.
type unpacker struct {
	from []byte
	bad  bool // the bytes make no sense
}

func (u *unpacker) octet() byte {
	if len(u.from) == 0 {
		u.bad = true
		return 0
	}
	b := u.from[0]
	u.from = u.from[1:]
	return b
}

func (u *unpacker) uvarint() uint64 {
	v, n := binary.Uvarint(u.from)
	if n <= 0 {
		u.bad = true
		return 0
	}
	u.from = u.from[n:]
	return v
}

func (u *unpacker) varint() int64 {
	v, n := binary.Varint(u.from)
	if n <= 0 {
		u.bad = true
		return 0
	}
	u.from = u.from[n:]
	return v
}

// rank is a number that fits a rank.
func (u *unpacker) rank() int { return int(uint32(u.uvarint()) & math.MaxInt32) }

func (u *unpacker) text(n int) string {
	if n > len(u.from) || !utf8.Valid(u.from[:n]) {
		u.bad = true
		return ""
	}
	t := string(u.from[:n])
	u.from = u.from[n:]
	return t
}

func (u *unpacker) ranks() (list []int) {
	n := u.uvarint()
	if n > uint64(len(u.from)) {
		u.bad = true
		return nil
	}
	for range n {
		list = append(list, u.rank())
	}
	return list
}

func (u *unpacker) side() (s Side) {
	s.Rank, s.N, s.Step = u.rank(), u.varint(), u.uvarint()
	s.Algorithm = u.text(int(u.octet()))
	s.Call = u.call()
	return s
}

func (u *unpacker) call() (c CallInfo) {
	s := &c.Fingerprint
	s.Verb, s.Type, s.ReduceOp = Verb(u.octet()), kernel.DType(u.octet()), ReduceOp(u.octet())
	form := u.octet()
	s.Uneven, c.Device = form&1 != 0, form&2 != 0
	if form&4 != 0 {
		s.Name = unnamed
	}
	s.Root, s.Count = int32(u.uvarint()), u.varint()
	c.Name = u.text(len(u.from))
	return c
}

// unpackFacts reads what packFacts has written, and reports whether it makes sense.
func (f *Failure) unpackFacts(from []byte) bool {
	u := unpacker{from: from}
	if f.Event = Event(u.octet()); f.Event >= numEvents {
		return false
	}
	for !u.bad && len(u.from) > 0 {
		name := u.octet()
		if name == factEnd {
			break
		}
		n := int(u.octet())
		if n > len(u.from) {
			return false
		}
		fact := unpacker{from: u.from[:n]}
		u.from = u.from[n:]
		if f.unpackFact(name, &fact); fact.bad {
			return false
		}
	}
	return !u.bad
}

func (f *Failure) unpackFact(name byte, u *unpacker) {
	w := &f.Wait
	switch name {
	case factLoss:
		f.Loss = Loss(u.text(len(u.from)))
	case factLimit:
		f.Limit = time.Duration(u.uvarint())
	case factTag:
		f.Tag = int(u.varint())
	case factWait:
		w.Phase = Phase(u.octet())
		if u.octet() != 0 {
			tag := int(u.varint())
			w.OtherTag = &tag
		}
		w.Ranks = u.ranks()
		u.bad = u.bad || w.Phase >= numPhases
	case factSide:
		f.Sides = append(f.Sides, u.side())
	case factRanks:
		f.Ranks = u.ranks()
	case factUnheard:
		w.Unheard = u.ranks()
	case factBehind:
		w.Behind = u.ranks()
	case factRelay:
		w.Relay, w.Leader = Relay(u.octet()), u.rank()
		w.Beyond = u.ranks()
		u.bad = u.bad || w.Relay >= numRelays
	case factDevice:
		f.Device = u.text(len(u.from))
	case factCause:
		f.Cause = unpackFailure(u)
	case factText:
		f.Text = u.text(len(u.from))
	case factLast:
		w.Last = append(w.Last, u.side())
	}
}

// unpackFailure reads what pack has written; nil if there is nothing.
func unpackFailure(u *unpacker) *Failure {
	if len(u.from) == 0 {
		return nil
	}
	kind, flags := int(u.octet()), u.octet()
	f := &Failure{Kind: ErrAborted, Left: flags&2 != 0}
	if kind > 0 && kind <= len(travelKinds) {
		f.Kind = travelKinds[kind-1].kind
	}
	f.Seq, f.Rank = u.uvarint(), u.rank()
	f.Lost = u.ranks()
	f.Op = u.text(int(u.octet()))
	u.bad = u.bad || !f.unpackFacts(u.from)
	return f
}

// Excuse is why a rank leaves a group that is well: because another of its
// groups has failed. Both groups are lists of ranks in the same numbers, and rank
// is the one in this group. It is nil if nothing has.
func Excuse(f *Failure, failed, group []int, rank int) *Failure {
	if f == nil {
		return nil
	}
	x := &Failure{Kind: ErrRankLost, Rank: rank, Facts: Facts{Event: LostElsewhere}}
	for _, r := range f.Lost {
		if i := slices.Index(group, failed[r]); i >= 0 && !f.Left {
			x.Lost = append(x.Lost, i)
		}
	}
	if x.Lost == nil {
		x.Lost, x.Left = []int{rank}, true
		x.Facts = Facts{Event: LeftElsewhere, Cause: f}
	}
	return x
}
