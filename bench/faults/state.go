package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tutti-go/tutti"
)

// warmBytes is how many bytes ranks exchange before they enter a state.
const warmBytes = 1 << 20

// initRank tries to join, within opTime, and reports how Join ended. Rank 2 waits for a line of
// input first, so that it can be killed, stopped or cut off before it joins. In the fault "cancel"
// rank 1 does not join, so that rank 2 is cancelled inside Join.
func initRank(cfg tutti.Config, in *bufio.Reader) error {
	rank, fault := number("TUTTI_RANK"), os.Getenv("FAULTS_FAULT")
	ctx, cancel := context.WithTimeout(context.Background(), opTime)
	defer cancel()
	fmt.Println("ready")
	if rank == victim {
		_, _ = in.ReadString('\n')
		switch fault {
		case "cancel":
			// Without rank 1 the job is not complete.
			time.AfterFunc(50*time.Millisecond, cancel)
		case "mismatch":
			if err := os.Setenv("TUTTI_SIZE", fmt.Sprint(drillSize+1)); err != nil {
				return err
			}
		}
	}
	if fault == "cancel" && rank == 1 {
		_, _ = in.ReadString('\n')
		return nil
	}
	c, err := tutti.Join(ctx, cfg)
	report(0, err)
	_, _ = in.ReadString('\n')
	return c.Close()
}

// A drillState is a rank of a drill, which is in its state when rank 2 has its
// fault.
type drillState struct {
	c            *tutti.Comm
	state, fault string
	in           *bufio.Reader
	x            tutti.Buffer
	next         *tutti.Comm // after Shrink
}

// drillRank is a rank of a drill outside of the state init. It exchanges warmBytes, waits for a
// line of input, runs its part, and reports how this ended. A deadline of opTime, or longer where
// another event must end the call, bounds the part.
func drillRank(c *tutti.Comm, state string, in *bufio.Reader) error {
	warm := make([]float32, warmBytes/4)
	if err := c.AllReduce(context.Background(), tutti.Of(warm), tutti.Sum); err != nil {
		return err
	}
	d := &drillState{c: c, state: state, fault: os.Getenv("FAULTS_FAULT"), in: in, x: tutti.Of(make([]float32, 10))}
	limit := opTime
	if d.fault == "cut" || d.shrinks() {
		limit = patience / 2 // something other than the deadline ends these
	}
	fmt.Println("ready")
	d.awaitLine()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var err error
	if c.Rank() == victim {
		err = d.runVictim(ctx, cancel)
	} else {
		err = d.runSurvivor(ctx)
	}
	reportNext(1, d.next, err)
	_, _ = in.ReadString('\n')
	return errors.Join(d.next.Close(), c.Close())
}

func (d *drillState) shrinks() bool { return d.state == "shrink" || d.state == shrinking }

// awaitLine waits for a line of input.
func (d *drillState) awaitLine() { _, _ = d.in.ReadString('\n') }

// awaitFailure waits until the Comm has failed.
func (d *drillState) awaitFailure() error {
	select {
	case <-d.c.Done():
		return d.c.Err()
	case <-time.After(patience / 2):
		return errors.New("nothing was heard of it")
	}
}

// shrink calls Shrink, and checks that the new Comm works. The new Comm is in next only if both
// succeed.
func (d *drillState) shrink(ctx context.Context) error {
	next, _, err := d.c.Shrink(ctx)
	if err != nil {
		return err
	}
	one := []int32{1}
	if err := next.AllReduce(ctx, tutti.Of(one), tutti.Sum); err != nil {
		return fmt.Errorf("after Shrink: %w", err)
	}
	if one[0] != int32(next.Size()) {
		return &wrongError{fmt.Sprintf("after Shrink the sum over %d ranks is %d", next.Size(), one[0])}
	}
	d.next = next
	return nil
}

// runSurvivor is the part of ranks 0 and 1: the call of the state, or, for a rank that makes no
// call, the wait for the Comm's failure. It returns the error that the rank reports.
func (d *drillState) runSurvivor(ctx context.Context) error {
	c := d.c
	switch {
	case d.state == "close":
		return c.Close()
	case d.state == "idle" && d.fault == "stop":
		d.awaitLine()
		if err := c.Err(); err != nil {
			return fmt.Errorf("before anybody needed it: %w", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), opTime)
		defer cancel()
		return c.AllReduce(ctx, d.x, tutti.Sum)
	case d.shrinks():
		if d.state == shrinking && c.Rank() == 1 {
			d.awaitLine()
		}
		return d.shrink(ctx)
	case d.state == "idle", c.Rank() == 1 && (d.state == "message" || d.fault != "stop"):
		return d.awaitFailure()
	case d.state == "message":
		_, err := c.Recv(ctx, victim, d.x, 1)
		return err
	}
	return c.AllReduce(ctx, d.x, tutti.Sum)
}

// runVictim is the part of rank 2, on which the fault happens. The process that runs the trial
// injects kill, stop and cut from outside; runVictim makes the other faults happen after a line of
// input. It returns the error that rank 2 itself reports, if it survives.
func (d *drillState) runVictim(ctx context.Context, cancel func()) error {
	c := d.c
	switch {
	case d.state == shrinking && d.fault == "cancel":
		go func() {
			d.awaitLine()
			cancel()
		}()
		return d.shrink(ctx)
	case d.state == shrinking:
		return d.shrink(ctx)
	case d.fault == "kill", d.fault == "cut":
		// During the operation, where there is one.
		switch d.state {
		case "collective":
			return c.AllReduce(ctx, d.x, tutti.Sum)
		case "message":
			_, err := c.Recv(ctx, 0, d.x, 1)
			return err
		case "idle", "close":
			return d.awaitFailure()
		}
	}
	d.awaitLine()
	switch d.fault {
	case "stop", "cut":
		// The rank continues, and runs the operation of the others. If all that it
		// needs has already arrived, its next operation fails.
		if d.shrinks() {
			return d.shrink(ctx)
		}
		err := c.AllReduce(ctx, d.x, tutti.Sum)
		if err == nil {
			err = c.AllReduce(ctx, d.x, tutti.Sum)
		}
		return err
	case "cancel":
		time.AfterFunc(50*time.Millisecond, cancel)
		if d.state == "message" {
			return c.Send(ctx, 1, d.x, 1) // rank 1 does not receive it
		}
		return c.AllReduce(ctx, d.x, tutti.Sum)
	case "mismatch":
		switch d.state {
		case "message":
			return c.Send(ctx, 0, tutti.Of(make([]int32, 3)), 1)
		case "close", "shrink":
			return c.AllReduce(ctx, d.x, tutti.Sum)
		}
		return c.Broadcast(ctx, tutti.Of(make([]int32, 3)), 0)
	case "abort":
		c.Abort(errors.New("the drill"))
	}
	return c.Err()
}
