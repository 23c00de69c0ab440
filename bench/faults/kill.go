package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// killed is what trials of kill have shown.
type killed struct {
	transport string
	trials    int
	inFlight  int // killed inside an operation
	ops       int // operations that the survivors had done and checked
	times     []time.Duration
}

// String is one line.
func (k *killed) String() string {
	slices.Sort(k.times)
	at := func(p int) time.Duration {
		return k.times[min(len(k.times)-1, len(k.times)*p/100)].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("kill, %s: %d trials, %d in flight, %d operations checked; to the last survivor's error: p50 %v, p99 %v, max %v",
		k.transport, k.trials, k.inFlight, k.ops, at(50), at(99), at(100))
}

// kill kills a random rank of 2 to 8 at a random moment, again and again. It
// fails at the first hang, wrong result, or survivor that does not name the
// killed rank, and if fewer than half of the killed were in an operation.
func kill(trials int, transport string, seed uint64, mib int) (*killed, error) {
	dir, err := os.MkdirTemp("", "faults")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	k := &killed{transport: transport}
	for i := range trials {
		if err := k.trial(rand.New(rand.NewPCG(seed, uint64(i))), dir, mib); err != nil {
			return nil, fmt.Errorf("trial %d: %w", i, err)
		}
	}
	if 2*k.inFlight <= k.trials {
		return k, fmt.Errorf("only %d of %d were killed in an operation", k.inFlight, k.trials)
	}
	return k, nil
}

func (k *killed) trial(rnd *rand.Rand, dir string, mib int) error {
	n := 2 + rnd.IntN(7)
	victim := rnd.IntN(n)
	note := filepath.Join(dir, "note")
	leave := ""
	if rnd.IntN(2) == 0 {
		leave = "1"
	}
	j, err := start(n, k.transport, "mix", "FAULTS_NOTE="+note, fmt.Sprint("FAULTS_SEED=", rnd.Uint64()),
		"FAULTS_LEAVE="+leave, fmt.Sprint("FAULTS_MIB=", mib))
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
	ends, err := j.ends(j.others(victim))
	what := fmt.Sprintf("rank %d of %d, which then leave: %q", victim, n, leave)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	_ = j.ranks[victim].wait() // killed
	for r, e := range ends {
		switch {
		case e.Wrong != "":
			return fmt.Errorf("%s: %s", what, e.Wrong)
		case e.Kind != "lost" || !e.names(victim):
			return fmt.Errorf("%s: rank %d was told: %s", what, r, e.Text)
		case e.Did < 20:
			return fmt.Errorf("%s: rank %d failed before the fault: %s", what, r, e.Text)
		}
		k.ops += e.Did
	}
	in, err := inOperation(note + fmt.Sprint(victim))
	if err != nil {
		return err
	}
	if in {
		k.inFlight++
	}
	k.trials++
	k.times = append(k.times, latest(ends, begin))
	return nil
}
