package engine

import (
	"encoding/binary"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/tutti-go/tutti/internal/kernel"
)

// An ExitReason is the message of a rank that leaves a group to the other ranks: the
// group's failure, as far as it fits. The zero ExitReason holds no failure. A rank that
// waits for a rank that has left takes this failure as its cause, instead of the loss of
// that rank: rank 0, which knows the first failure, may be unreachable.
type ExitReason [120]byte

// The layout, with integers in little-endian order:
//
//	byte 0      kind of failure, counted from 1
//	byte 1      flags: bit 0 Told, bit 1 Left
//	byte 2      number of lost ranks (low half), number of ranks in Above (high half)
//	byte 3      length of the operation's name
//	bytes 4-7   rank
//	bytes 8-15  number of the operation
//
// Then follow the lost ranks and the ranks in Above, four bytes each, the operation's
// name, the event, and facts up to a zero byte or the end. A fact has a byte for its
// name, a byte for the length of its value, and the value. Facts that do not fit are
// omitted, and texts are cut.
const (
	exitReasonHead = 16 // bytes before the ranks
	mostLost       = 4  // ranks in Lost and Above together
)

// The names of facts in an ExitReason.
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
	factWaits
)

// maxOpBytes is the maximum length of an operation's name in an ExitReason, in bytes.
const maxOpBytes = 32

// NewExitReason returns the exit reason of a rank whose group has failed with f. It is zero
// if f is nil: the group has not failed.
func NewExitReason(f *Failure) (w ExitReason) {
	if f == nil {
		return w
	}
	kind := kindIndex(f.Kind)
	if kind < 0 || len(f.Lost) > mostLost {
		return w
	}
	above := f.Above[:min(len(f.Above), mostLost-len(f.Lost))]
	w[0], w[2], w[3] = byte(1+kind), byte(len(f.Lost)|len(above)<<4), byte(min(len(f.Op), maxOpBytes))
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

// Failure decodes an exit reason in a group of size ranks. It returns nil if the exit
// reason is zero or invalid. If whole is true, the group is not a part of another one:
// Failure clears Told, so that the group finds out which failure is the first one. A
// group inside another engine keeps Told: the ranks may have numbers of the outer group.
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

// A packer encodes facts into a limited number of bytes.
type packer struct {
	to   []byte
	room int // maximum length of to
}

// add appends a fact, and reports whether it fitted.
func (p *packer) add(name byte, fact []byte) bool {
	if len(fact) > math.MaxUint8 || len(p.to)+2+len(fact) > p.room {
		return false
	}
	p.to = append(append(p.to, name, byte(len(fact))), fact...)
	return true
}

// addText appends a text. It cuts a text that does not fit between two characters, and marks the cut with
// dots; if there is no room for that, it appends nothing.
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

// addSide appends a side with as much of the call's name as fits into room bytes.
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

// packFacts encodes facts into at most room bytes. Facts that the text of the failure
// needs come first.
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
	if f.Total > 0 {
		p.add(factWaits, packWaits(f.Total, f.Waits[:min(len(f.Waits), 4)]))
	}
	for i := range f.Sides {
		// The sides share the remaining bytes equally.
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
		const least = 12 // bytes of the smallest useful cause
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

// pack encodes a failure into at most room bytes: kind, flags, number of the operation,
// rank, lost ranks, name of the operation, and facts. It returns nil if that does not fit.
func (f *Failure) pack(room int) []byte {
	flags := byte(0)
	if f.Left {
		flags = 2
	}
	b := []byte{byte(1 + kindIndex(f.Kind)), flags}
	b = binary.AppendUvarint(b, f.Seq)
	b = binary.AppendUvarint(b, uint64(f.Rank))
	b = packRanks(b, f.Lost[:min(len(f.Lost), 2*mostLost)])
	op := f.Op[:min(len(f.Op), maxOpBytes)]
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

// packWaits encodes the total number of ranks in a cycle, and their first waits.
func packWaits(total int, waits []MessageWait) []byte {
	b := binary.AppendUvarint(nil, uint64(total))
	for _, w := range waits {
		send := byte(0)
		if w.Send {
			send = 1
		}
		b = append(b, send)
		b = binary.AppendUvarint(b, uint64(w.Rank))
		b = binary.AppendUvarint(b, uint64(w.Peer))
		b = binary.AppendVarint(b, int64(w.Tag))
	}
	return b
}

// packSide encodes a side. The name of its call is at the end, so that it can be cut.
func packSide(s *Side) []byte {
	b := binary.AppendUvarint(nil, uint64(s.Rank))
	b = binary.AppendVarint(b, s.N)
	b = binary.AppendUvarint(b, s.Step)
	b = append(append(b, byte(len(s.Algorithm))), s.Algorithm...)
	return append(b, packCall(&s.Call)...)
}

// packCall encodes a call. Its name is at the end, so that it can be cut.
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

// unpackFacts decodes the result of packFacts into f. It reports false if the bytes, which come from another
// process, are invalid; f may then hold a part of the facts.
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

// unpackFact decodes one fact into f. It sets u.bad if the bytes are invalid, and ignores an unknown name.
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
	case factWaits:
		f.Total = u.rank()
		for len(u.from) > 0 && !u.bad {
			f.Waits = append(f.Waits, MessageWait{Send: u.octet() != 0, Rank: u.rank(), Peer: u.rank(), Tag: int(u.varint())})
		}
	}
}

// unpackFailure decodes the result of pack. It returns nil if u is empty.
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

// Excuse returns the reason of a rank that leaves a group because another of its groups
// has failed with f. It returns nil if f is nil. failed and group hold the ranks of the
// failed group and of the group that the rank leaves, in common numbers. rank is the
// rank's number in group.
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
