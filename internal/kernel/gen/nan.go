package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

const unordered = U8(3)

// unorderedMask marks the lanes in which v or w is a NaN.
func unorderedMask(f format, v, w vec) vec {
	m := newVec(widthOf(v))
	if f.double() {
		VCMPPD(unordered, v, w, m)
	} else {
		VCMPPS(unordered, v, w, m)
	}
	return m
}

// branchIfNaN jumps to target if any of the vectors contains a NaN. One comparison serves two
// vectors.
func branchIfNaN(f format, vectors [][]vec, target LabelRef) {
	var all []vec
	for _, values := range vectors {
		all = append(all, values...)
	}
	var found vec
	for i := 0; i < len(all); i += 2 {
		m := unorderedMask(f, all[i], all[min(i+1, len(all)-1)])
		if found == nil {
			found = m
		} else {
			VPOR(m, found, found)
		}
	}
	bits := GP32()
	VPMOVMSKB(found, bits)
	TESTL(bits, bits)
	JNZ(target)
}

// canonicalize replaces NaNs by the canonical NaN.
func canonicalize(f format, k *constants, values []vec) {
	for _, v := range values {
		m := unorderedMask(f, v, v)
		if f.double() {
			VBLENDVPD(m, k.nan, v, v)
		} else {
			VBLENDVPS(m, k.nan, v, v)
		}
	}
}
