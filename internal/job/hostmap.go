package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/segment"
)

// A hostMemory is what a process has to share memory with the other ranks of its host.
type hostMemory struct {
	listener *segment.Listener        // nil: no memory can be shared
	key      []byte                   // that the ranks' listeners know
	identity *segment.ProcessIdentity // kept as long as the job: others look for it in this process
	// host holds the Life of each of ranks, in its part; nil: this rank is alone on its host.
	host  *segment.Segment
	ranks []int
	life  *segment.Liveness // this rank's; nil: none can be had
}

// open makes this process reachable for those who share memory with it. A system may
// forbid that: many containers do not let a process make memory files.
func (m *hostMemory) open() (err error) {
	if err := segment.Probe(); err != nil {
		return err
	}
	m.identity = segment.NewProcessIdentity()
	m.listener, err = segment.Listen()
	return err
}

func (m *hostMemory) close() (err error) {
	if m.listener != nil {
		err = m.listener.Close()
	}
	if m.life != nil {
		m.life.Close()
	}
	return errors.Join(err, m.host.Close())
}

// attachTime is how long a rank waits for the memory of its host.
const attachTime = 10 * time.Second

// meetRounds is how often the ranks try to find out which of them share a host.
const maxHostRounds = 3

// A standing is one byte: what a rank says of itself in each round.
const (
	attached  = 1 << iota // it has the memory of its host
	readsNext             // it can read the memory of the next rank's process
)

// meet finds out which ranks share a host: in each round, the lowest of those that seem to
// shares memory with the others, and all ranks exchange one byte. Being passed that memory is
// the proof of sharing a host. One round is enough, unless one rank does not get it.
func (j *Job) findHosts(ctx context.Context, all []int) error {
	if j.memory.listener != nil {
		j.memory.key = j.mac(j.cfg.Secret, "memory", string(j.key))
		j.memory.listener.Serve(j.memory.key)
	}
	d := newHostMap(j.peers)
	for round, more := 0, true; more && round < maxHostRounds; round++ {
		standing, stop := j.runRound(ctx, round, d)
		blobs, err := j.member.Gather(ctx, fmt.Sprint(hostsKey, " ", round), all, []byte{standing})
		stop() // no rank waits for memory any more
		if err != nil {
			return err
		}
		if more, err = d.applyRound(blobs); err != nil {
			return err
		}
	}
	j.hosts, j.reads = d.result()
	j.member.Hosts(j.hosts)
	for i, r := range j.memory.ranks {
		if j.hosts[r] == j.hosts[j.cfg.Rank] {
			j.peers[r].identity.UseLiveness(j.memory.host.Part(i))
		}
	}
	return nil
}

// stand does this rank's part of a round, and returns what it has come to. Stop ends what
// it does for others.
func (j *Job) runRound(ctx context.Context, round int, d *hostMap) (standing byte, stop func()) {
	self, near := j.cfg.Rank, d.sameHost(j.cfg.Rank)
	stop = func() {}
	if d.hosts[self] < 0 && len(near) > 1 {
		var err error
		if stop, err = j.attach(ctx, fmt.Sprint(hostName, " ", round), near); err != nil {
			j.cfg.Logger.Warn("tutti: no shared memory with ranks that seem to be near; TCP is used, which is slower (tutti doctor says more)",
				"ranks", near, "reason", err)
			return 0, stop
		}
	}
	standing = attached
	if len(near) > 1 {
		var seen byte
		next := j.peers[near[(slices.Index(near, self)+1)%len(near)]].identity
		if segment.ReadProcess(next, unsafe.Pointer(&seen), next.Addr, 1) == nil {
			standing |= readsNext
		}
	}
	return standing, stop
}

// attach maps memory that the first of some ranks makes and shares with the others under a
// name, and begins this process's Life in it. Stop ends the sharing.
func (j *Job) attach(ctx context.Context, name string, ranks []int) (stop func(), err error) {
	m, stop := &j.memory, func() {}
	own := slices.Index(ranks, j.cfg.Rank)
	if own == 0 {
		if m.host, err = segment.New("tutti host", len(ranks), segment.LivenessBytes, own); err != nil {
			return stop, err
		}
		stop = m.offer(ctx, name, ranks[1:])
	} else {
		ctx, cancel := context.WithTimeout(ctx, attachTime)
		defer cancel()
		fd, err := segment.Fetch(ctx, j.peers[ranks[0]].listener, m.key, name, j.cfg.Rank)
		if err != nil {
			return stop, err
		}
		if m.host, err = segment.Map(fd, len(ranks), segment.LivenessBytes, own); err != nil {
			return stop, err
		}
		if err := m.host.CloseFD(); err != nil {
			return stop, err
		}
	}
	m.ranks = ranks
	if m.life, err = segment.NewLiveness(m.host.Part(own)); err != nil {
		j.cfg.Logger.Debug("tutti: this process does not show others that it lives; they find out more slowly", "reason", err)
	}
	return stop, nil
}

// offer passes the host's memory to ranks until stop is called.
func (m *hostMemory) offer(ctx context.Context, name string, ranks []int) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = m.listener.Pass(ctx, name, m.host, ranks) // ranks that did not get it say so
	}()
	return func() {
		cancel()
		<-done
		_ = m.host.CloseFD() // which cannot fail for a memory file
	}
}

// A division of the ranks into hosts is found in rounds. All ranks come to the same.
type hostMap struct {
	hints []hint
	hosts []int  // by rank: the lowest rank of the same host; -1: not known yet
	reads []bool // by rank: it reads the next rank's memory
}

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

// near are the ranks of the same host, if it is known, or those that seem to be on it
// and have found no host yet.
func (d *hostMap) sameHost(rank int) (list []int) {
	for r := range d.hosts {
		if d.hosts[r] == d.hosts[rank] && (d.hosts[r] >= 0 || d.hints[r] == d.hints[rank]) {
			list = append(list, r)
		}
	}
	return list
}

// settle takes what the ranks say of themselves after a round. It reports whether another round is
// needed: ranks without a host try again, and the others look again for the next rank, which
// was one of those perhaps.
func (d *hostMap) applyRound(standings [][]byte) (more bool, err error) {
	first := make(map[hint]int) // the lowest rank that had no host
	for r, s := range standings {
		if len(s) != 1 {
			return false, fmt.Errorf("rank %d said %d bytes in place of one", r, len(s))
		}
		if _, known := first[d.hints[r]]; d.hosts[r] < 0 && !known {
			first[d.hints[r]] = r
		}
	}
	for r, s := range standings {
		d.reads[r] = s[0]&readsNext != 0
		if d.hosts[r] >= 0 {
			continue
		}
		if f := first[d.hints[r]]; r == f || s[0]&standings[f][0]&attached != 0 {
			d.hosts[r] = f
		} else {
			more = true
		}
	}
	return more, nil
}

// result is the division after the last round.
func (d *hostMap) result() (hosts []int, reads []bool) {
	for r, h := range d.hosts {
		if h < 0 {
			d.hosts[r] = r
		}
	}
	return d.hosts, d.reads
}
