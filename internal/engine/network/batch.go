package network

import (
	"strconv"

	"github.com/tutti-go/tutti/internal/engine"
)

// together returns how many of the first calls are carried out as one: small
// AllReduces of one type and operation. All ranks come to the same number,
// because it follows from the fingerprints.
func (e *Engine) together(calls []engine.Call) int {
	first := &calls[0]
	room := fuseMost
	for i := range calls {
		c := &calls[i]
		if c.Verb != engine.AllReduce || c.Red != first.Red || c.Src.Type != first.Src.Type || c.Src.Bytes() > room {
			return max(i, 1)
		}
		room -= c.Src.Bytes()
	}
	return len(calls)
}

// carryOutTogether is one step for several AllReduces. Their sources are put
// into a row, multiplied by their factors.
func (e *Engine) carryOutTogether(calls []engine.Call) error {
	t := calls[0].Src.Type
	all := engine.Call{Verb: engine.AllReduce, Red: calls[0].Red}
	n := 0
	for i := range calls {
		n += calls[i].Src.N
	}
	row := e.room(forBatch, n, t)
	at := 0
	for i := range calls {
		c := &calls[i]
		r := e.reduction(c)
		r.load(row.Slice(at, c.Src.N), c.Src)
		if r.scaled {
			all.Red = c.Red.Info().Inner
		}
		at += c.Src.N
	}
	all.Src, all.Dst = row, row
	way := e.opt.choose(all.Sig(), e.size)
	e.enter(groupMark(calls), way, calls[0].Op())
	if err := e.allReduce(&all, way); err != nil {
		return err
	}
	at = 0
	for i := range calls {
		c := &calls[i]
		engine.Copy(c.Dst, row.Slice(at, c.Dst.N))
		at += c.Dst.N
	}
	return nil
}

// groupMark is the fingerprint of calls that are carried out together. In place
// of a name it shows their counts.
func groupMark(calls []engine.Call) mark {
	s := calls[0].Sig()
	m := mark{sig: engine.Sig{Verb: engine.Group, Type: s.Type, Red: s.Red, Count: int64(len(calls))}}
	shown := m.name[:0:nameBytes]
	var raw [sigBytes + nameBytes]byte
	h := engine.HashStart
	for i := range calls {
		one := newMark(&calls[i])
		one.put(raw[:])
		h = h.Bytes(raw[:sigBytes])
		if i > 0 && len(shown) < nameBytes/2 {
			shown = append(shown, '+')
		}
		if len(shown) < nameBytes/2 {
			shown = strconv.AppendInt(shown, one.sig.Count, 10)
		}
	}
	m.sig.Name = (uint64(h) | 1) << 1 // neither zero, which says that there is no name, nor a step's
	return m
}
