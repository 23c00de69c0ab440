package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// killResults are the results of kill trials.
type killResults struct {
	kind      string // of the trials
	transport string
	trials    int
	inFlight  int // trials in which the rank was killed inside an operation
	ops       int // operations that the survivors had completed and checked
	times     []time.Duration
	log       *os.File // a line for each trial; may be nil
}

// buckets are the upper ends of the parts of the distribution.
var buckets = []time.Duration{
	5 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond,
	500 * time.Millisecond, time.Second, patience,
}

// String returns a line with the summary and a line with the distribution.
func (k *killResults) String() string {
	if len(k.times) == 0 {
		return "no trials"
	}
	slices.Sort(k.times)
	at := func(p int) time.Duration {
		return k.times[min(len(k.times)-1, len(k.times)*p/100)].Round(10 * time.Microsecond)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s: %d trials, %d in flight, %d operations checked; to the last survivor's error: p50 %v, p99 %v, max %v\n ",
		k.kind, k.transport, k.trials, k.inFlight, k.ops, at(50), at(99), at(100))
	below := 0
	for _, to := range buckets {
		n, _ := slices.BinarySearch(k.times, to)
		fmt.Fprintf(&b, " under %v: %d;", to, n-below)
		below = n
	}
	return strings.TrimSuffix(b.String(), ";")
}

// note adds the result of one trial.
func (k *killResults) note(inFlight bool, ops int, took time.Duration) {
	k.trials++
	if inFlight {
		k.inFlight++
	}
	k.ops += ops
	k.times = append(k.times, took)
}

// read reads the trials of earlier runs from a log, and leaves it open for more in k.log, which the
// caller closes. A line that is not the next trial is an error.
func (k *killResults) read(path string) (err error) {
	if k.log, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	s := bufio.NewScanner(k.log)
	for s.Scan() {
		var trial, ops int
		var inFlight bool
		var took time.Duration
		if _, err := fmt.Sscan(s.Text(), &trial, &inFlight, &ops, (*int64)(&took)); err != nil || trial != k.trials {
			return fmt.Errorf("%s: line %d is not trial %d: %q", path, k.trials+1, k.trials, s.Text())
		}
		k.note(inFlight, ops, took)
	}
	return s.Err()
}

// killOptions are the options of kill trials.
type killOptions struct {
	trials int
	seed   uint64
	mib    int           // memory that each rank holds in addition
	most   int           // ranks; not with messages
	limit  time.Duration // from the end of the process to the last survivor's error; 0: patience
	log    string        // file to continue; may be empty
	bound  time.Duration // time after which no trial begins; 0: none
	out    io.Writer     // for the progress; may be nil
	// messages selects ranks that exchange messages, instead of random operations.
	messages bool
}

// kill repeatedly kills a random rank of 2 or more at a random moment. It fails at
// the first hang, wrong result, or survivor that does not name the killed rank. It
// also fails if fewer than half of the killed ranks were in an operation.
func kill(transport string, o killOptions) (*killResults, error) {
	dir, err := os.MkdirTemp("", "faults")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	k := &killResults{kind: "kill", transport: transport}
	if o.messages {
		k.kind = "kill with messages"
	}
	if o.log != "" {
		if err := k.read(o.log); err != nil {
			return nil, err
		}
		defer k.log.Close()
	}
	begin := time.Now()
	for i := k.trials; i < o.trials && (o.bound == 0 || time.Since(begin) < o.bound); i++ {
		if err := k.trial(rand.New(rand.NewPCG(o.seed, uint64(i))), dir, o); err != nil {
			return nil, fmt.Errorf("trial %d: %w", i, err)
		}
		if o.out != nil && k.trials%50 == 0 {
			fmt.Fprintf(o.out, "%d of %d trials after %v\n", k.trials, o.trials, time.Since(begin).Round(time.Second))
		}
	}
	if k.trials >= 20 && 2*k.inFlight <= k.trials { // a few trials may all miss by chance
		return k, fmt.Errorf("only %d of %d were killed in an operation", k.inFlight, k.trials)
	}
	return k, nil
}

// trial starts a job of random operations, or of messages, and kills a random rank at a random
// moment. Every survivor must report the loss of this rank, and no wrong result, within the limit. Only
// a successful trial is added to k and to the log.
func (k *killResults) trial(rnd *rand.Rand, dir string, o killOptions) error {
	n, state := messageRanks, "messages"
	if !o.messages {
		n, state = 2+rnd.IntN(o.most-1), "mix"
	}
	victim := rnd.IntN(n)
	note := filepath.Join(dir, "note")
	leave := ""
	if rnd.IntN(2) == 0 {
		leave = "1"
	}
	j, err := start(spec{ranks: n, transport: k.transport, state: state, env: append(messageKinds(k.trials),
		"FAULTS_NOTE="+note, fmt.Sprint("FAULTS_SEED=", rnd.Uint64()), "FAULTS_LEAVE="+leave, fmt.Sprint("FAULTS_MIB=", o.mib),
	)})
	if err != nil {
		return err
	}
	defer j.end()
	if err := j.awaitAll("ready", append(j.others(victim), victim)); err != nil {
		return err
	}
	time.Sleep(time.Duration(rnd.IntN(30_000)) * time.Microsecond) // the random moment
	begin := time.Now()
	if err := j.ranks[victim].cmd.Process.Kill(); err != nil {
		return err
	}
	died := make(chan time.Time, 1)
	go func() {
		_ = j.ranks[victim].wait() // the error is that it was killed
		died <- time.Now()
	}()
	ends, err := j.awaitEnds(j.others(victim))
	what := fmt.Sprintf("%s, rank %d of %d, which then leave: %q", state, victim, n, leave)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	late := lastEnd(ends, <-died)
	ops := 0
	for r, e := range ends {
		switch {
		case e.Wrong != "":
			return fmt.Errorf("%s: %s", what, e.Wrong)
		case e.Kind != "lost" || !e.namesLost(victim):
			return fmt.Errorf("%s: rank %d was told: %s", what, r, e.Text)
		case e.Did < 20:
			return fmt.Errorf("%s: rank %d failed before the fault: %s", what, r, e.Text)
		}
		ops += e.Did
	}
	in, err := inOperation(note + fmt.Sprint(victim))
	if err != nil {
		return err
	}
	took := lastEnd(ends, begin)
	if o.limit > 0 && late > o.limit {
		return fmt.Errorf("%s: the last survivor was notified %v after the process had ended", what, late)
	}
	if k.log != nil {
		if _, err := fmt.Fprintln(k.log, k.trials, in, ops, int64(took)); err != nil {
			return err
		}
	}
	k.note(in, ops, took)
	return nil
}
