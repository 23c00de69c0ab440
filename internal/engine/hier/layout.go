package hier

import "slices"

// A layout is the placement of ranks on hosts. It does not change.
type layout struct {
	rank    int
	hosts   []int // by rank: the lowest rank of the same host
	local   []int // the ranks of this host, ascending; the first is the leader
	leaders []int // the lowest rank of each host, ascending
	index   []int // by rank: its index among the ranks of its host
	order   []int // all ranks, host by host
	offsets []int // by host: index in order of its first rank; the last element is len(order)
	inOrder bool  // order is ascending
	even    bool  // all hosts have the same number of ranks
}

// newLayout computes the placement as rank sees it. hosts holds, by rank, the lowest rank of the same host.
func newLayout(rank int, hosts []int) layout {
	l := layout{rank: rank, hosts: hosts, index: make([]int, len(hosts))}
	for first, host := range hosts {
		if first != host {
			continue
		}
		l.leaders = append(l.leaders, first)
		l.offsets = append(l.offsets, len(l.order))
		for r, h := range hosts {
			if h == first {
				l.index[r] = len(l.order) - l.offsets[len(l.offsets)-1]
				l.order = append(l.order, r)
			}
		}
	}
	l.offsets = append(l.offsets, len(l.order))
	l.inOrder = slices.IsSorted(l.order)
	l.even = true
	for h := range l.leaders {
		l.even = l.even && l.rankCount(h) == l.rankCount(0)
	}
	mine := l.hostIndex(rank)
	l.local = l.order[l.offsets[mine]:l.offsets[mine+1]]
	return l
}

// hostIndex returns the index of a rank's host. It is the leader's rank in the leaders' group.
func (l *layout) hostIndex(rank int) int { return slices.Index(l.leaders, l.hosts[rank]) }

// onThisHost reports whether a rank is on this host.
func (l *layout) onThisHost(rank int) bool { return l.hosts[rank] == l.hosts[l.rank] }

// isLeader reports whether this rank is the leader of its host.
func (l *layout) isLeader() bool { return l.hosts[l.rank] == l.rank }

// rankCount returns the number of ranks on a host.
func (l *layout) rankCount(host int) int { return l.offsets[host+1] - l.offsets[host] }
