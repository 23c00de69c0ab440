package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tutti-go/tutti"
)

// errAbort is the reason with which a rank aborts the survivors' group.
var errAbort = errors.New("the reason of the trial")

// survivorsOptions are the options of survivors trials.
type survivorsOptions struct {
	trials int
	seed   uint64
	limit  time.Duration // how soon all members of a group must be notified; 0: before they count as hung
	out    io.Writer     // for the progress; may be nil
}

// survivorsResults are the results of survivors trials.
type survivorsResults struct {
	transport string
	times     map[string][]time.Duration // by event: time until the last member's error
	victims   map[string]int             // by kind of fault
	first     int                        // trials in which rank 0 was a victim
	trials    int
}

// String returns the numbers of victims, and for each event the percentiles of the times.
func (s *survivorsResults) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "survivors, %s: %d trials; victims: %d killed, %d stopped, %d left, rank 0 in %d trials; to the last member's error:",
		s.transport, s.trials, s.victims["kill"], s.victims["stop"], s.victims["leave"], s.first)
	for _, event := range survivorEvents {
		times := s.times[event]
		if len(times) == 0 {
			continue
		}
		slices.Sort(times)
		at := func(p int) time.Duration {
			return times[min(len(times)-1, len(times)*p/100)].Round(10 * time.Microsecond)
		}
		fmt.Fprintf(&b, "\n  %-8s %3d trials: p50 %v, p99 %v, max %v", event, len(times), at(50), at(99), at(100))
	}
	return b.String()
}

// survivorEvents are the events in the group of the remaining ranks.
var survivorEvents = []string{"abort", "cancel", "death", "mismatch"}

// runSurvivors makes ranks of a job die, stop or leave, rank 0 more often than
// others, at once or one after the other. Then an event happens in a group of the
// remaining ranks. Every member must be notified in time, of the right cause.
func runSurvivors(transport string, o survivorsOptions) (*survivorsResults, error) {
	s := &survivorsResults{transport: transport, times: make(map[string][]time.Duration), victims: make(map[string]int)}
	begin := time.Now()
	for i := range o.trials {
		if err := s.trial(rand.New(rand.NewPCG(o.seed, uint64(i))), o.limit); err != nil {
			return s, fmt.Errorf("trial %d: %w", i, err)
		}
		if o.out != nil && s.trials%50 == 0 {
			fmt.Fprintf(o.out, "%d of %d trials after %v\n", s.trials, o.trials, time.Since(begin).Round(time.Second))
		}
	}
	return s, nil
}

// trial starts a job, makes some ranks victims, triggers an event in the group of the others, and
// checks the cause that each member reports. It fails if a member has another cause, hangs, or is
// notified after limit. Only a successful trial adds a time to s.
func (s *survivorsResults) trial(rnd *rand.Rand, limit time.Duration) error {
	n := 4 + rnd.IntN(4)
	order := rnd.Perm(n)
	if rnd.IntN(3) > 0 {
		slices.Sort(order) // the lowest ranks
	}
	count := 1 + rnd.IntN(n-3)
	victims, rest := order[:count], slices.Sorted(slices.Values(order[count:]))
	actor, event := rest[rnd.IntN(len(rest))], survivorEvents[rnd.IntN(len(survivorEvents))]
	what := fmt.Sprintf("%d ranks, victims", n)
	j, err := start(spec{ranks: n, transport: s.transport, state: "survivors", env: []string{"FAULTS_REST=" + strings.Trim(fmt.Sprint(rest), "[]")}})
	if err != nil {
		return err
	}
	defer j.end()
	if err := j.awaitAll("ready", append(rest, victims...)); err != nil {
		return err
	}
	pause := func(ms int) { time.Sleep(time.Duration(rnd.IntN(ms*1000)) * time.Microsecond) }
	together := rnd.IntN(2) == 0
	for _, r := range victims {
		how := []string{"kill", "stop", "leave"}[rnd.IntN(3)]
		what += fmt.Sprintf(" %d (%s)", r, how)
		s.victims[how]++
		if r == 0 {
			s.first++
		}
		if err := injectFault(j.ranks[r], how); err != nil {
			return err
		}
		if !together {
			pause(300)
		}
	}
	what += fmt.Sprintf(", then %s on rank %d", event, actor)
	pause(600)
	for _, r := range rest {
		j.ranks[r].send("go")
	}
	if err := j.awaitAll("busy", rest); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	pause(30)
	begin, told := time.Now(), rest
	if event == "death" {
		told = slices.DeleteFunc(slices.Clone(rest), func(r int) bool { return r == actor })
		if err := j.ranks[actor].cmd.Process.Kill(); err != nil {
			return err
		}
	} else {
		j.ranks[actor].send(event)
	}
	ends, err := j.awaitEnds(told)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := rightCause(ends, event, slices.Index(rest, actor)); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	took := lastEnd(ends, begin)
	if limit > 0 && took > limit {
		return fmt.Errorf("%s: the last member was notified after %v", what, took)
	}
	s.trials++
	s.times[event] = append(s.times[event], took)
	return nil
}

// injectFault injects a fault into a rank's process, and checks that it happened.
func injectFault(k *rank, how string) error {
	switch how {
	case "kill":
		return k.cmd.Process.Kill()
	case "stop":
		return k.cmd.Process.Signal(syscall.SIGSTOP)
	}
	k.send("leave")
	_, err := k.await("left")
	return err
}

// rightCause checks the cause that the members of the group report. actor is the
// rank with the event.
func rightCause(ends map[int]end, event string, actor int) error {
	for r, e := range ends {
		right := e.Wrong == ""
		switch event {
		case "abort":
			right = right && e.Kind == "revoked" && strings.Contains(e.Text, errAbort.Error())
		case "cancel":
			right = right && (e.Kind == "aborted" || e.Kind == "none") && strings.Contains(e.Text, "cancel")
		case "death":
			right = right && e.Kind == "lost" && slices.Equal(e.Lost, []int{actor})
		case "mismatch":
			right = right && e.Kind == "mismatch" && e.mentions(actor)
		}
		if !right {
			return fmt.Errorf("rank %d was notified of: %s (%s; %s)", r, e.Text, e.Kind, e.Wrong)
		}
	}
	return nil
}

// survivorsRank is a rank of such a job: a victim, or a member of the group of the others. A member
// runs operations until one fails, and reports this failure. A goroutine reads the event from the
// input; the main goroutine makes it happen between two operations.
func survivorsRank(c *tutti.Comm, in *bufio.Reader) error {
	ctx := context.Background()
	var rest []int
	for text := range strings.FieldsSeq(os.Getenv("FAULTS_REST")) {
		r, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		rest = append(rest, r)
	}
	color := tutti.NoGroup
	if slices.Contains(rest, c.Rank()) {
		color = 1
	}
	d, err := c.Split(ctx, color, c.Rank())
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	if d == nil {
		err := c.Close()
		fmt.Println("left")
		return err
	}
	event := make(chan string, 1)
	go func() {
		line, _ := in.ReadString('\n')
		event <- strings.TrimSpace(line)
	}()
	during, cancel := context.WithCancel(ctx)
	defer cancel()
	for did := 0; err == nil; did++ {
		if did == 20 {
			fmt.Println("busy")
		}
		x := []float32{1}
		select {
		case what := <-event:
			err = triggerEvent(during, cancel, d, what)
		default:
			if err = d.AllReduce(during, tutti.Of(x), tutti.Sum); err == nil && x[0] != float32(d.Size()) {
				err = &wrongError{fmt.Sprintf("a sum is %v", x[0])}
			}
		}
		if err != nil {
			report(did, err)
		}
	}
	return nil // exits without Close, like a program that exits on an error
}

// triggerEvent makes an event happen in the group, on this rank.
func triggerEvent(ctx context.Context, cancel func(), d *tutti.Comm, what string) error {
	switch what {
	case "abort":
		d.Abort(errAbort)
		return d.Barrier(ctx)
	case "cancel":
		time.AfterFunc(time.Millisecond, cancel)
		x := make([]float32, 1)
		return d.Send(ctx, (d.Rank()+1)%d.Size(), tutti.Of(x), 1) // no rank receives it
	case "mismatch":
		return d.Barrier(ctx)
	}
	return fmt.Errorf("nothing is known of %q", what)
}
