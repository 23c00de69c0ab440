package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tutti-go/tutti"
)

// A partition is a fault of the network between two hosts, with two ranks each. The
// store is on a third host.
type partition struct {
	name string
	do   func(j *job) error
	// exited is the host whose processes exit; -1: none.
	exited int
	// cut is the host that can no longer reach the store; -1: both.
	cut int
	// heals reports whether the host is connected again at the end.
	heals bool
}

// partitionHosts is the host of each rank.
var partitionHosts = []int{0, 0, 1, 1}

var partitions = []partition{
	{name: "the host of ranks 2 and 3 is cut off", do: cutting(1), exited: -1, cut: 1, heals: true},
	{name: "the host of ranks 0 and 1 is cut off", do: cutting(0), exited: -1, cut: 0, heals: true},
	{name: "the hosts do not reach each other, but both the store", do: func(j *job) error { return j.net.Isolate(0, 1) }, exited: -1, cut: -1},
	{name: "nothing reaches the host of ranks 2 and 3", do: func(j *job) error { return j.net.DropInbound(1) }, exited: -1, cut: 1},
	{name: "nothing reaches the host of ranks 0 and 1", do: func(j *job) error { return j.net.DropInbound(0) }, exited: -1, cut: 0},
	{name: "the host of ranks 2 and 3 is lost", do: cutting(1), exited: 1, cut: 1},
	{name: "the host of ranks 0 and 1 is lost", do: cutting(0), exited: 0, cut: 0},
}

func cutting(host int) func(*job) error {
	return func(j *job) error { return j.net.Disconnect(host) }
}

// partitionRank runs operations until the network fails. It then calls Shrink at once, and again
// for each line of its input, until the input ends.
func partitionRank(c *tutti.Comm, in *bufio.Reader) error {
	ctx := context.Background()
	x := make([]float32, warmBytes/4)
	if err := c.AllReduce(ctx, tutti.Of(x), tutti.Sum); err != nil {
		return err
	}
	near, err := c.SplitHost(ctx)
	if err != nil {
		return err
	}
	fmt.Println("ready", near.Size())
	did := 0
	for err == nil {
		err = c.AllReduce(ctx, tutti.Of(x), tutti.Max)
		did++
	}
	report(did, err)
	d := &drillState{c: c}
	for {
		bound, cancel := context.WithTimeout(ctx, patience/2)
		err := d.shrink(bound)
		cancel()
		reportNext(did, d.next, err)
		if _, err := in.ReadString('\n'); err != nil {
			return errors.Join(d.next.Close(), near.Close(), c.Close())
		}
	}
}

// shrinkTimeout is Config.ShrinkTimeout: how long a side tries that does not reach the
// store.
const shrinkTimeout = 5 * time.Second

// A side is the ranks of one host, and their results.
type side struct {
	ranks     []int
	notified  time.Duration // time until all its ranks had their error
	lost      []int         // the ranks that their errors name
	next      string        // result of Shrink
	continues bool          // its ranks continue
}

// partitionOptions are the options of partition trials.
type partitionOptions struct {
	hostTimeout time.Duration // how long a host may not answer
	only        string        // a part of a name; "": all
	strict      bool          // a late error is a failure
	out         io.Writer
}

// partitionAll tries all faults of the network, and writes a table.
func partitionAll(o partitionOptions) error {
	fmt.Fprintf(o.out, "| HostTimeout %v | ranks 0 and 1 | ranks 2 and 3 |\n| --- | --- | --- |\n", o.hostTimeout)
	for _, p := range partitions {
		if !strings.Contains(p.name, o.only) {
			continue
		}
		sides, err := p.try(o)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		fmt.Fprintf(o.out, "| %s | %s | %s |\n", p.name, sides[0].text(p.exited == 0), sides[1].text(p.exited == 1))
	}
	return nil
}

func (s *side) text(exited bool) string {
	if exited {
		return "gone"
	}
	return fmt.Sprintf("ErrRankLost of %v after %v; Shrink: %s", s.lost, s.notified.Round(10*time.Millisecond), s.next)
}

// try runs one trial. It fails if both sides continue, or, if strict is set, if a
// side does not learn within HostTimeout plus a second which ranks cannot be reached.
func (p *partition) try(o partitionOptions) ([]*side, error) {
	j, err := start(spec{
		ranks: len(partitionHosts), transport: "shm", state: "partition", hosts: partitionHosts,
		env: []string{fmt.Sprint("FAULTS_HOST_TIMEOUT=", o.hostTimeout), fmt.Sprint("FAULTS_SHRINK_TIMEOUT=", shrinkTimeout)},
	})
	if err != nil {
		return nil, err
	}
	defer j.end()
	for r, k := range j.ranks {
		near, err := k.await("ready")
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
		if near != "2" {
			return nil, fmt.Errorf("rank %d finds %s ranks on its host", r, near)
		}
	}
	sides := []*side{{ranks: []int{0, 1}}, {ranks: []int{2, 3}}}
	before, err := j.traffic()
	if err != nil {
		return nil, err
	}
	for h, t := range before {
		if t.sent < warmBytes || t.received < warmBytes {
			return nil, fmt.Errorf("host %d has sent and received only %d and %d bytes: the ranks do not use the network", h, t.sent, t.received)
		}
	}
	begin := time.Now()
	if err := p.do(j); err != nil {
		return nil, err
	}
	if p.exited >= 0 {
		for _, r := range sides[p.exited].ranks {
			if err := j.ranks[r].cmd.Process.Kill(); err != nil {
				return nil, err
			}
		}
	}
	struck, err := j.traffic()
	if err != nil {
		return nil, err
	}
	for h, s := range sides {
		if h == p.exited {
			continue
		}
		if err := s.awaitErrors(j, begin); err != nil {
			return nil, err
		}
		if o.strict && s.notified > o.hostTimeout+time.Second {
			return nil, fmt.Errorf("ranks %v were told after %v", s.ranks, s.notified)
		}
	}
	if err := p.verifyInjected(j, struck); err != nil {
		return nil, err
	}
	return sides, p.checkContinuation(j, sides)
}

// backgroundBytes is more than the switch itself may send to a host (IPv6
// multicast), and less than one frame of the ranks.
const backgroundBytes = 512

// traffic is what the switch has counted for a host.
type traffic struct{ sent, received uint64 }

func (j *job) traffic() (list []traffic, err error) {
	for h := range 2 {
		var t traffic
		if t.sent, t.received, err = j.net.Traffic(h); err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

// verifyInjected checks that no data reaches a host that must not receive any, and
// that a host that can still send has done so.
func (p *partition) verifyInjected(j *job, struck []traffic) error {
	now, err := j.traffic()
	if err != nil {
		return err
	}
	for h, t := range now {
		got, sent := t.received-struck[h].received, t.sent-struck[h].sent
		switch {
		case p.cut == h && got > backgroundBytes:
			return fmt.Errorf("host %d has received %d bytes after it was cut off", h, got)
		case p.exited != h && sent == 0:
			return fmt.Errorf("host %d has not tried to send", h)
		case p.cut < 0 && got >= warmBytes:
			return fmt.Errorf("host %d has received %d bytes although it is kept apart from the other", h, got)
		}
	}
	return nil
}

// awaitErrors waits for the errors of a side's ranks, and notes which ranks they name and when the
// last one came. Each rank must report lost ranks, all of them on the other side.
func (s *side) awaitErrors(j *job, begin time.Time) error {
	ends, err := j.awaitEnds(s.ranks)
	if err != nil {
		return err
	}
	for r, e := range ends {
		if e.Kind != "lost" || len(e.Lost) == 0 || slices.ContainsFunc(e.Lost, func(l int) bool { return slices.Contains(s.ranks, l) }) {
			return fmt.Errorf("rank %d was told that %v are lost, %s: %q", r, e.Lost, e.Kind, e.Text)
		}
		for _, l := range e.Lost {
			if !slices.Contains(s.lost, l) {
				s.lost = append(s.lost, l)
			}
		}
	}
	slices.Sort(s.lost)
	s.notified = lastEnd(ends, begin)
	return nil
}

// checkContinuation checks which sides continue: one side, and never both where the
// store decides.
func (p *partition) checkContinuation(j *job, sides []*side) error {
	for h, s := range sides {
		if h == p.exited {
			continue
		}
		if err := s.awaitShrink(j); err != nil {
			return err
		}
		if s.continues && h == p.cut {
			return fmt.Errorf("ranks %v go on, although they do not reach the store", s.ranks)
		}
	}
	if sides[0].continues == sides[1].continues {
		return fmt.Errorf("it is not one side that goes on: %s; %s", sides[0].next, sides[1].next)
	}
	if !p.heals {
		return nil
	}
	if err := j.net.Reconnect(p.cut); err != nil {
		return err
	}
	late := sides[p.cut]
	for _, r := range late.ranks {
		j.ranks[r].send("again")
	}
	first := late.next
	if err := late.awaitShrink(j); err != nil {
		return fmt.Errorf("ranks %v, which are connected again: %w", late.ranks, err)
	}
	if late.continues || !strings.Contains(late.next, errorNames["excluded"]) {
		return fmt.Errorf("ranks %v, which are connected again, have the result: %s", late.ranks, late.next)
	}
	late.next = first + "; when it is connected again: " + late.next
	return nil
}

// awaitShrink waits until each rank of a side has reported the result of its Shrink,
// each for at most patience. All ranks must report the same size; the kinds of their
// errors may differ. It is called by the goroutine that runs the trial.
func (s *side) awaitShrink(j *job) error {
	ends, err := j.awaitEnds(s.ranks)
	if err != nil {
		return err
	}
	size, kinds := -1, []string(nil)
	for _, r := range s.ranks {
		e := ends[r]
		if e.Wrong != "" {
			return fmt.Errorf("rank %d: %s", r, e.Wrong)
		}
		if size >= 0 && e.Size != size {
			return fmt.Errorf("ranks %v do not agree: the Comm of rank %d has %d ranks: %q", s.ranks, r, e.Size, e.Text)
		}
		size = e.Size
		if kind := errorNames[e.Kind]; e.Size == 0 && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	s.continues = size > 0
	if s.continues && size != len(s.ranks) {
		return fmt.Errorf("the Comm of ranks %v has %d ranks", s.ranks, size)
	}
	s.next = strings.Join(kinds, ", ")
	if s.continues {
		s.next = fmt.Sprintf("go on, %d ranks", size)
	}
	return nil
}
