package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tutti-go/tutti"
)

// In a drill of three ranks, rank 2 has the fault. Ranks 0 and 1 are in the
// state that is tried, except that where rank 2 itself must be blocked rank 1
// calls nothing and only listens.
const (
	drillSize = 3
	victim    = drillSize - 1
)

var (
	states = []string{"init", "collective", "message", "idle", "close"}
	faults = []string{"kill", "stop", "cancel", "mismatch", "abort"}
	// senseless says why some cells have no meaning.
	senseless = map[string]string{
		"init abort":    "there is no Comm to abort",
		"idle stop":     "nobody waits for it: seen by the next operation",
		"idle cancel":   "there is no operation",
		"idle mismatch": "there is no operation",
		"close cancel":  "Close takes no context",
		"close abort":   "the others have left already",
	}
)

// drill tries each fault in each state, and writes a table: after how long the
// last of those was told who are to be, and what.
func drill(transport string, out io.Writer) error {
	fmt.Fprintf(out, "| %s | %s |\n|%s\n", transport, strings.Join(faults, " | "), strings.Repeat(" --- |", 1+len(faults)))
	for _, state := range states {
		row := []string{state}
		for _, fault := range faults {
			if why := senseless[state+" "+fault]; why != "" {
				row = append(row, why)
				continue
			}
			text, err := drillCell(transport, state, fault)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", state, fault, err)
			}
			row = append(row, text)
		}
		fmt.Fprintf(out, "| %s |\n", strings.Join(row, " | "))
	}
	return nil
}

func drillCell(transport, state, fault string) (string, error) {
	j, err := start(drillSize, transport, state, "FAULTS_FAULT="+fault)
	if err != nil {
		return "", err
	}
	defer j.end()
	if err := j.awaitAll("ready", []int{0, 1, 2}); err != nil {
		return "", err
	}
	time.Sleep(200 * time.Millisecond) // so that the others are blocked
	begin := time.Now()
	told := []int{0, 1}
	if state == "init" && fault == "cancel" {
		told = []int{0} // rank 1 does not come
	}
	switch fault {
	case "kill":
		err = j.ranks[victim].cmd.Process.Kill()
	case "stop":
		err = j.ranks[victim].cmd.Process.Signal(syscall.SIGSTOP)
	default:
		j.ranks[victim].say("go")
		told = append(told, victim)
	}
	if err != nil {
		return "", err
	}
	ends, err := j.ends(told)
	if err != nil {
		return "", err
	}
	// Who is told the same at about the same time is one item.
	var items []string
	last := make(map[string]time.Duration)
	for _, r := range told {
		e := ends[r]
		if !slices.Contains(items, e.Kind) {
			items = append(items, e.Kind)
		}
		last[e.Kind] = max(last[e.Kind], time.Unix(0, e.At).Sub(begin))
	}
	for i, kind := range items {
		t := last[kind].Round(100 * time.Microsecond)
		if t > time.Second {
			t = t.Round(10 * time.Millisecond)
		}
		if kind == "none" {
			kind = "no error" // Close
		}
		items[i] = fmt.Sprintf("%s %v", kind, t)
	}
	return strings.Join(items, ", "), nil
}

// initRank tries to join, within opTime.
func initRank(cfg tutti.Config, in *bufio.Reader) error {
	fault := os.Getenv("FAULTS_FAULT")
	ctx, cancel := context.WithTimeout(context.Background(), opTime)
	defer cancel()
	fmt.Println("ready")
	if cfg.Rank == victim {
		_, _ = in.ReadString('\n')
		switch fault {
		case "cancel":
			// The others are not complete without rank 1.
			time.AfterFunc(50*time.Millisecond, cancel)
		case "mismatch":
			cfg.Size++
		}
	}
	if fault == "cancel" && cfg.Rank == 1 {
		_, _ = in.ReadString('\n')
		return nil
	}
	c, err := tutti.Join(ctx, cfg)
	report(0, err)
	_, _ = in.ReadString('\n')
	return c.Close()
}

// drillRank is in a state when rank 2 has its fault.
func drillRank(c *tutti.Comm, state string, in *bufio.Reader) error {
	if err := c.Barrier(context.Background()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), opTime)
	defer cancel()
	fmt.Println("ready")
	var err error
	fault := os.Getenv("FAULTS_FAULT")
	if c.Rank() == victim {
		err = suffer(ctx, cancel, c, state, fault, in)
	} else {
		err = undergo(ctx, c, state, fault)
	}
	report(1, err)
	_, _ = in.ReadString('\n')
	return c.Close()
}

// undergo is what ranks 0 and 1 do.
func undergo(ctx context.Context, c *tutti.Comm, state, fault string) error {
	x := tutti.Of(make([]float32, 10))
	switch {
	case state == "close":
		return c.Close()
	case state == "idle", c.Rank() == 1 && (state == "message" || fault != "stop"):
		select {
		case <-c.Done():
			return c.Err()
		case <-time.After(patience / 2):
			return errors.New("nothing was heard of it")
		}
	case state == "message":
		return c.Recv(ctx, victim, x, 1)
	}
	return c.AllReduce(ctx, x, tutti.Sum)
}

// suffer is what rank 2 does. It is killed or stopped in the second line, or,
// in a collective operation, in the middle of that.
func suffer(ctx context.Context, cancel func(), c *tutti.Comm, state, fault string, in *bufio.Reader) error {
	x := tutti.Of(make([]float32, 10))
	if state == "collective" && fault == "kill" {
		return c.AllReduce(ctx, x, tutti.Sum)
	}
	_, _ = in.ReadString('\n')
	switch fault {
	case "cancel":
		time.AfterFunc(50*time.Millisecond, cancel)
		if state == "message" {
			return c.Recv(ctx, 1, x, 1)
		}
		return c.AllReduce(ctx, x, tutti.Sum)
	case "mismatch":
		switch state {
		case "message":
			return c.Send(ctx, 0, tutti.Of(make([]float32, 11)), 1)
		case "close":
			return c.AllReduce(ctx, x, tutti.Sum)
		}
		return c.Broadcast(ctx, tutti.Of(make([]int32, 3)), 0)
	case "abort":
		c.Abort(errors.New("the drill"))
	}
	return c.Err()
}
