package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/engine"
)

// stateName is the environment variable that says what a rank does.
const stateName = "FAULTS_STATE"

// kinds are the kinds of errors, by their printed names.
var kinds = map[string]error{
	"lost": tutti.ErrRankLost, "timeout": tutti.ErrTimeout, "mismatch": tutti.ErrMismatch, "aborted": tutti.ErrAborted, "revoked": tutti.ErrRevoked,
	"closed": tutti.ErrClosed, "invalid": tutti.ErrInvalid, "excluded": tutti.ErrExcluded, "corrupt": tutti.ErrCorrupt,
}

// number reads a number from the environment.
func number(name string) int {
	n, _ := strconv.Atoi(os.Getenv(name))
	return n
}

// duration reads a duration from the environment.
func duration(name string) time.Duration {
	d, _ := time.ParseDuration(os.Getenv(name))
	return d
}

// report prints how the rank's work ended.
func report(did int, err error) { reportNext(did, nil, err) }

// reportNext is report for a rank that may continue with another Comm.
func reportNext(did int, next *tutti.Comm, err error) {
	e := newEnd(did, next, err)
	e.print()
}

func (e *end) print() {
	text, _ := json.Marshal(e) // Marshal cannot fail for an end
	fmt.Println("ended " + string(text))
}

// newEnd returns the end of a rank's work, now.
func newEnd(did int, next *tutti.Comm, err error) end {
	e := end{At: time.Now().UnixNano(), Kind: "none", Did: did}
	if next != nil {
		e.Size = next.Size()
	}
	wrong := (*wrongError)(nil)
	public := (*tutti.Error)(nil)
	if errors.As(err, &public) {
		e.Lost = public.Lost
	}
	failure := (*engine.Failure)(nil)
	if errors.As(err, &failure) {
		e.Awaited = slices.Concat(failure.Wait.Ranks, failure.Wait.Unheard)
	}
	for name, kind := range kinds {
		if errors.Is(err, kind) {
			e.Kind = name
		}
	}
	if errors.As(err, &wrong) {
		e.Wrong = wrong.Error()
	}
	if err != nil {
		e.Text = err.Error()
	}
	return e
}

// rankProcess is the main function of a process of a trial. Its state selects the function of the
// rank. If Join fails, the process exits with an error, except in the state init, which reports how
// Join ended.
func rankProcess() error {
	state := os.Getenv(stateName)
	in := bufio.NewReader(os.Stdin)
	if state == "store" {
		return storeProcess(in)
	}
	cfg := tutti.Config{
		NoSharedMemory: os.Getenv("FAULTS_TRANSPORT") == "tcp", Host: os.Getenv("FAULTS_HOST"),
		HostTimeout: duration("FAULTS_HOST_TIMEOUT"), ShrinkTimeout: duration("FAULTS_SHRINK_TIMEOUT"),
		Logger: slog.New(slog.DiscardHandler),
	}
	switch state {
	case "init":
		return initRank(cfg, in)
	case "mismatch":
		return mismatchRank(cfg, in)
	case "verify":
		return verifyRank(cfg, in)
	}
	c, err := tutti.Join(context.Background(), cfg)
	if err != nil {
		return err
	}
	switch state {
	case "mix":
		return mixRank(c, in)
	case "messages":
		return messagesRank(c, in)
	case "survivors":
		return survivorsRank(c, in)
	case "stop":
		return stopRank(c, in)
	case "partition":
		return partitionRank(c, in)
	}
	return drillRank(c, state, in)
}

// mixRank runs random operations, the same on all ranks, until one fails, and reports this failure.
// It then exits without Close or waits for its input to end, as FAULTS_LEAVE says.
func mixRank(c *tutti.Comm, in *bufio.Reader) error {
	ballast := make([]byte, number("FAULTS_MIB")<<20)
	for i := 0; i < len(ballast); i += 4096 {
		ballast[i] = 1
	}
	note, err := openFlag(fmt.Sprint(os.Getenv("FAULTS_NOTE"), c.Rank()))
	if err != nil {
		return err
	}
	seed, _ := strconv.ParseUint(os.Getenv("FAULTS_SEED"), 10, 64)
	m := &randomOps{c: c, rnd: rand.New(rand.NewPCG(seed, 0))}
	ctx := context.Background()
	for did := 0; ; did++ {
		if did == 20 {
			fmt.Println("ready")
		}
		if err := m.runOne(ctx, note); err != nil {
			report(did, err)
			break
		}
	}
	if os.Getenv("FAULTS_LEAVE") != "" {
		return nil // exits without Close, like a program that exits on an error
	}
	_, _ = in.ReadString('\n')
	return c.Close()
}
