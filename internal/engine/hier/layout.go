package hier

import "slices"

// A layout is where the ranks are.
type layout struct {
	rank    int
	hosts   []int // by rank: the lowest rank of the same host
	local   []int // the ranks of this host; the first one leads it
	leaders []int // the first ranks of all hosts
	index   []int // by rank: its number on its host
	order   []int // all ranks, host by host
	starts  []int // by host: where its ranks begin in order; and the end
	inOrder bool  // order is that of the ranks
	even    bool  // all hosts have as many ranks
}

func newLayout(rank int, hosts []int) layout {
	l := layout{rank: rank, hosts: hosts, index: make([]int, len(hosts))}
	for first, host := range hosts {
		if first != host {
			continue
		}
		l.leaders = append(l.leaders, first)
		l.starts = append(l.starts, len(l.order))
		for r, h := range hosts {
			if h == first {
				l.index[r] = len(l.order) - l.starts[len(l.starts)-1]
				l.order = append(l.order, r)
			}
		}
	}
	l.starts = append(l.starts, len(l.order))
	l.inOrder = slices.IsSorted(l.order)
	l.even = true
	for h := range l.leaders {
		l.even = l.even && l.ranks(h) == l.ranks(0)
	}
	mine := l.host(rank)
	l.local = l.order[l.starts[mine]:l.starts[mine+1]]
	return l
}

// host is the number of a rank's host, which is also its leader's number.
func (l *layout) host(rank int) int { return slices.Index(l.leaders, l.hosts[rank]) }

// here reports whether a rank is on this host.
func (l *layout) here(rank int) bool { return l.hosts[rank] == l.hosts[l.rank] }

// leads reports whether this rank leads its host.
func (l *layout) leads() bool { return l.hosts[l.rank] == l.rank }

// ranks is how many ranks a host has.
func (l *layout) ranks(host int) int { return l.starts[host+1] - l.starts[host] }
