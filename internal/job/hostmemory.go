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

// hostMemory is what a process needs to share memory with the other ranks of its host.
type hostMemory struct {
	listener *segment.Listener        // nil: the process cannot share memory
	key      []byte                   // known to the listeners of all ranks
	identity *segment.ProcessIdentity // kept until the end of the job, because other processes look for it in this process's memory
	// host holds a part for the Liveness of each of ranks. Nil: this rank is alone on its host.
	host  *segment.Segment
	ranks []int
	life  *segment.Liveness // of this rank; nil: not available
}

// open makes the listener that passes memory. It fails if the system does not allow that; many
// containers forbid memory files.
func (m *hostMemory) open() (err error) {
	if err := segment.Probe(); err != nil {
		return err
	}
	m.identity = segment.NewProcessIdentity()
	m.listener, err = segment.Listen()
	return err
}

// close releases everything that open and attach have made.
func (m *hostMemory) close() (err error) {
	if m.listener != nil {
		err = m.listener.Close()
	}
	if m.life != nil {
		m.life.Close()
	}
	return errors.Join(err, m.host.Close())
}

// attachTime bounds how long a rank waits for the memory of its host.
const attachTime = 10 * time.Second

// maxHostRounds bounds the rounds of findHosts.
const maxHostRounds = 3

// The bits of the byte that a rank sends in each round.
const (
	attached  = 1 << iota // the rank has the memory of its host
	readsNext             // the rank can read the memory of the next rank's process
)

// findHosts determines which ranks share a host. In each round the lowest rank of those with equal
// host hints shares memory with the others, and all ranks exchange a status byte. Receiving the
// memory proves that two ranks share a host. Another round is needed only if a rank did not receive
// it.
func (j *Job) findHosts(ctx context.Context, all []int) error {
	if j.memory.listener != nil {
		j.memory.key = j.deriveKey(j.cfg.Secret, "memory", string(j.key))
		j.memory.listener.Serve(j.memory.key)
	}
	d := newHostMap(j.peers)
	for round, more := 0, true; more && round < maxHostRounds; round++ {
		status, stop := j.runRound(ctx, round, d)
		blobs, err := j.member.Gather(ctx, fmt.Sprint(hostsKey, " ", round), all, []byte{status})
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

// runRound does this rank's part of a round and returns its status byte; zero means that it cannot share
// memory, which it logs. stop ends the sharing of memory with other ranks and is never nil.
func (j *Job) runRound(ctx context.Context, round int, d *hostMap) (status byte, stop func()) {
	self, sameHost := j.cfg.Rank, d.sameHost(j.cfg.Rank)
	stop = func() {}
	if d.hosts[self] < 0 && len(sameHost) > 1 {
		var err error
		if stop, err = j.attach(ctx, fmt.Sprint(hostName, " ", round), sameHost); err != nil {
			j.cfg.Logger.Warn("tutti: no shared memory with ranks that seem to be on this host; TCP is used, which is slower (run tutti doctor for the reason)",
				"ranks", sameHost, "reason", err)
			return 0, stop
		}
	}
	status = attached
	if len(sameHost) > 1 {
		var seen byte
		next := j.peers[sameHost[(slices.Index(sameHost, self)+1)%len(sameHost)]].identity
		if segment.ReadProcess(next, unsafe.Pointer(&seen), next.Addr, 1) == nil {
			status |= readsNext
		}
	}
	return status, stop
}

// attach maps the memory that the first of ranks makes and shares under a name, and begins this
// process's Liveness in it. stop ends the sharing.
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
		j.cfg.Logger.Debug("tutti: other processes will detect the exit of this process more slowly", "reason", err)
	}
	return stop, nil
}

// offer passes the host's memory to ranks until stop is called.
func (m *hostMemory) offer(ctx context.Context, name string, ranks []int) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = m.listener.Pass(ctx, name, m.host, ranks) // ranks that did not receive it report so
	}()
	return func() {
		cancel()
		<-done
		_ = m.host.CloseFD() // cannot fail for a memory file
	}
}
