package sim

import (
	"math/rand/v2"
	"time"
)

// Draw returns a fault that will happen in a run with these options, of one of the
// kinds, or of any kind if there are none. messages is how many messages each rank
// sends without a fault; it must not be all zero.
func Draw(rnd *rand.Rand, opt *Options, messages []int, kinds ...Kind) Fault {
	if len(kinds) == 0 {
		for k := Crash; k <= LastKind; k++ {
			kinds = append(kinds, k)
		}
	}
	f := Fault{Kind: kinds[rnd.IntN(len(kinds))]}
	var speak []int
	for r, n := range messages {
		if n > 0 {
			speak = append(speak, r)
		}
	}
	f.Rank = speak[rnd.IntN(len(speak))]
	f.Message = rnd.IntN(messages[f.Rank])
	// A fault of limited duration must either go unnoticed or have an effect, never
	// be borderline.
	switch f.Kind {
	case Stall:
		f.For = []time.Duration{0, opt.Timeout / 2, 2 * opt.Timeout}[rnd.IntN(3)]
		if opt.Timeout < 0 { // no timeout would end a longer fault
			f.For = time.Minute
		}
	case Partition, OneWay:
		f.For = []time.Duration{0, opt.HostTimeout / 3, 2 * opt.HostTimeout}[rnd.IntN(3)]
		for r := range messages {
			if r != f.Rank && rnd.IntN(2) == 0 && len(f.Peers) < len(messages)-2 {
				f.Peers = append(f.Peers, r)
			}
		}
	}
	return f
}

// Harmless reports whether a fault must cause no error.
func (f *Fault) Harmless(opt *Options) bool {
	switch f.Kind {
	case Stall:
		return f.For > 0 && (opt.Timeout < 0 || f.For < opt.Timeout)
	case Partition, OneWay:
		return f.For > 0 && f.For < opt.HostTimeout && (opt.Timeout < 0 || f.For < opt.Timeout)
	}
	return false
}
