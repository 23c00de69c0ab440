package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// pauseAll repeatedly stops one of the ranks that exchange messages, for a part of a second, and
// continues it. No call may fail, and all data must be right.
func pauseAll(trials int, transport string, seed uint64, out io.Writer) error {
	dir, err := os.MkdirTemp("", "faults")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	calls := 0
	for i := range trials {
		did, err := pauseOne(rand.New(rand.NewPCG(seed, uint64(i))), transport, filepath.Join(dir, "note"), messageKinds(i))
		if err != nil {
			return fmt.Errorf("trial %d: %w", i, err)
		}
		calls += did
	}
	fmt.Fprintf(out, "stop with messages, %s: %d trials; %d calls checked, and no error\n", transport, trials, calls)
	return nil
}

// pauseOne runs one trial and returns the number of calls that were checked. It is an error if a call
// fails, or if messages do not continue to arrive.
func pauseOne(rnd *rand.Rand, transport, note string, env []string) (calls int, err error) {
	victim, pause := rnd.IntN(messageRanks), time.Duration(100+rnd.IntN(600))*time.Millisecond
	j, err := start(spec{
		ranks: messageRanks, transport: transport, state: "messages",
		env: append(env, "FAULTS_NOTE="+note, fmt.Sprint("FAULTS_SEED=", rnd.Uint64())),
	})
	if err != nil {
		return 0, err
	}
	defer j.end()
	if err := j.awaitAll("ready", append(j.others(victim), victim)); err != nil {
		return 0, err
	}
	time.Sleep(time.Duration(rnd.IntN(30_000)) * time.Microsecond) // the random moment
	if err := j.ranks[victim].stop(); err != nil {
		return 0, err
	}
	time.Sleep(pause)
	if err := j.ranks[victim].cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return 0, err
	}
	for _, k := range j.ranks {
		k.send("go")
	}
	ends, err := j.awaitEnds(append(j.others(victim), victim))
	what := fmt.Sprintf("rank %d was stopped for %v", victim, pause)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	for r, e := range ends {
		if e.Kind != "none" || e.Wrong != "" {
			return 0, fmt.Errorf("%s: rank %d was told: %s; %s", what, r, e.Text, e.Wrong)
		}
		calls += e.Did
	}
	return calls, nil
}
