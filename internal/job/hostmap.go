package job

import "fmt"

// A hostMap divides the ranks into hosts, in rounds. All ranks compute the same hostMap.
type hostMap struct {
	hints []hint
	hosts []int  // by rank: the lowest rank of the same host; -1: not known yet
	reads []bool // by rank: it can read the next rank's memory
}

// newHostMap returns the division before the first round: a rank without shared memory is alone.
func newHostMap(peers []rankInfo) *hostMap {
	d := &hostMap{hosts: make([]int, len(peers)), reads: make([]bool, len(peers))}
	for r, p := range peers {
		d.hints = append(d.hints, p.host)
		d.hosts[r] = -1
		if p.host == (hint{}) {
			d.hosts[r] = r
		}
	}
	return d
}

// sameHost returns the ranks on rank's host. If that host is not known yet, it returns the ranks
// without a host that have the same hint.
func (d *hostMap) sameHost(rank int) (list []int) {
	for r := range d.hosts {
		if d.hosts[r] == d.hosts[rank] && (d.hosts[r] >= 0 || d.hints[r] == d.hints[rank]) {
			list = append(list, r)
		}
	}
	return list
}

// applyRound handles the status bytes of all ranks after a round. It reports whether another round
// is needed. In that round the ranks without a host try again, and all ranks test their next rank
// again, which may have changed.
func (d *hostMap) applyRound(statuses [][]byte) (more bool, err error) {
	first := make(map[hint]int) // the lowest rank that has no host yet
	for r, s := range statuses {
		if len(s) != 1 {
			return false, fmt.Errorf("rank %d sent %d bytes of host status instead of one", r, len(s))
		}
		if _, known := first[d.hints[r]]; d.hosts[r] < 0 && !known {
			first[d.hints[r]] = r
		}
	}
	for r, s := range statuses {
		d.reads[r] = s[0]&readsNext != 0
		if d.hosts[r] >= 0 {
			continue
		}
		if f := first[d.hints[r]]; r == f || s[0]&statuses[f][0]&attached != 0 {
			d.hosts[r] = f
		} else {
			more = true
		}
	}
	return more, nil
}

// result returns the hosts and reads after the last round. A rank without a host is alone on its
// own.
func (d *hostMap) result() (hosts []int, reads []bool) {
	for r, h := range d.hosts {
		if h < 0 {
			d.hosts[r] = r
		}
	}
	return d.hosts, d.reads
}
