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

// verifySizes are the bytes of an AllReduce with and without Config.Verify, and the
// number of operations per measurement.
var verifySizes = []struct{ bytes, count int }{{4, 1600}, {64 << 10, 160}, {16 << 20, 16}}

// verifyRounds is how often both are measured, alternately.
const verifyRounds = 9

// verifyRank has two Comms, of which the second verifies, and measures both in turns. It prints the
// medians in nanoseconds. An error ends the process without Close.
func verifyRank(cfg tutti.Config, in *bufio.Reader) error {
	ctx := context.Background()
	var comms [2]*tutti.Comm
	for i := range comms {
		var err error
		cfg.Verify = i == 1
		if comms[i], err = tutti.Join(ctx, cfg); err != nil {
			return err
		}
	}
	for _, s := range verifySizes {
		x := tutti.Of(make([]float32, s.bytes/4))
		var took [2][]time.Duration
		for range verifyRounds {
			for i, c := range comms {
				begin := time.Now()
				for range s.count {
					if err := c.AllReduce(ctx, x, tutti.Max); err != nil {
						return err
					}
				}
				took[i] = append(took[i], time.Since(begin)/time.Duration(s.count))
			}
		}
		for i := range took {
			slices.Sort(took[i])
		}
		fmt.Println("median", s.bytes, int64(took[0][verifyRounds/2]), int64(took[1][verifyRounds/2]))
	}
	_, _ = in.ReadString('\n')
	return errors.Join(comms[1].Close(), comms[0].Close())
}

// verifyCost starts two ranks, and writes the cost of Config.Verify as rank 0 prints it, one row
// for each size.
func verifyCost(transport string, out io.Writer) error {
	j, err := start(spec{ranks: 2, transport: transport, state: "verify"})
	if err != nil {
		return err
	}
	defer j.end()
	for _, s := range verifySizes {
		text, err := j.ranks[0].await("median")
		if err != nil {
			return err
		}
		var bytes int
		var off, on time.Duration
		if _, err := fmt.Fscan(strings.NewReader(text), &bytes, (*int64)(&off), (*int64)(&on)); err != nil || bytes != s.bytes {
			return fmt.Errorf("%q: %w", text, err)
		}
		fmt.Fprintf(out, "| %s | %d | %v | %v | %+.0f%% |\n", transport, bytes, off, on, 100*(float64(on)/float64(off)-1))
	}
	return nil
}
