package network

import (
	"strconv"

	"github.com/tutti-go/tutti/internal/engine"
)

// callsPerStep returns how many of the first calls run as one step: small
// AllReduces of one type and operator. All ranks compute the same number, because
// it follows from the fingerprints.
func (e *Engine) callsPerStep(calls []engine.Call) int {
	first := &calls[0]
	left := maxFusedBytes
	for i := range calls {
		c := &calls[i]
		if c.Verb != engine.AllReduce || c.Red != first.Red || c.Src.Type != first.Src.Type || c.Src.Bytes() > left {
			return max(i, 1)
		}
		left -= c.Src.Bytes()
	}
	return len(calls)
}

// runFused runs several AllReduces in one step. It copies their sources, multiplied
// by their factors, one after the other into scratch memory.
func (e *Engine) runFused(calls []engine.Call) error {
	t := calls[0].Src.Type
	all := engine.Call{Verb: engine.AllReduce, Red: calls[0].Red}
	n := 0
	for i := range calls {
		n += calls[i].Src.N
	}
	joined := e.scratchMem(forBatch, n, t)
	at := 0
	for i := range calls {
		c := &calls[i]
		r := e.reduction(c)
		r.load(joined.Slice(at, c.Src.N), c.Src)
		if r.scaled {
			all.Red = c.Red.Info().Inner
		}
		at += c.Src.N
	}
	all.Src, all.Dst = joined, joined
	alg := e.opt.choose(all.Sig(), e.size)
	e.beginStep(fusedFingerprint(calls), alg, calls[0].Op())
	if err := e.allReduce(&all, alg); err != nil {
		return err
	}
	at = 0
	for i := range calls {
		c := &calls[i]
		engine.Copy(c.Dst, joined.Slice(at, c.Dst.N))
		at += c.Dst.N
	}
	return nil
}

// fusedFingerprint is the fingerprint of calls that run as one step. In place of a
// name it shows their counts.
func fusedFingerprint(calls []engine.Call) fingerprint {
	s := calls[0].Sig()
	m := fingerprint{sig: engine.Sig{Verb: engine.Group, Type: s.Type, Red: s.Red, Count: int64(len(calls))}}
	shown := m.name[:0:nameBytes]
	var raw [sigBytes + nameBytes]byte
	h := engine.HashStart
	for i := range calls {
		one := newFingerprint(&calls[i])
		one.put(raw[:])
		h = h.Bytes(raw[:sigBytes])
		if i > 0 && len(shown) < nameBytes/2 {
			shown = append(shown, '+')
		}
		if len(shown) < nameBytes/2 {
			shown = strconv.AppendInt(shown, one.sig.Count, 10)
		}
	}
	m.sig.Name = (uint64(h) | 1) << 1 // neither zero, which means no name, nor the name of a step
	return m
}
