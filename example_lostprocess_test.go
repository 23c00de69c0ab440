package tutti_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/launch"
)

// lostProcess is the main function of each process of the job. Rank 2 is killed in the third step. The others
// continue without it.
func lostProcess() error {
	ctx := context.Background()
	c, err := tutti.Join(ctx, tutti.Config{})
	if err != nil {
		return err
	}
	for step := 0; err == nil; step++ {
		if c.Rank() == 2 && step == 2 {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		_, err = tutti.AllReduceValue(ctx, c, 1, tutti.Sum)
	}
	if c, _, err = c.Shrink(ctx); err != nil {
		return err
	}
	n, err := tutti.AllReduceValue(ctx, c, 1, tutti.Sum)
	if c.Rank() == 0 {
		fmt.Println(n, "ranks are left")
	}
	if err != nil {
		return err
	}
	return c.Close()
}

// Example_lostProcess runs four processes as tutti run --elastic 3:4 --replacements 0 does. The launcher does not
// end the job when one of them is killed.
func Example_lostProcess() {
	report, err := launch.Run(context.Background(), launch.Config{
		Command: []string{os.Args[0]}, // this program; its main function calls lostProcess
		Env:     append(os.Environ(), "TUTTI_TEST_RANK=-1", "TUTTI_TEST_BODY=lost"),
		Ranks:   4, Min: 3, Replacements: -1,
		Stderr: io.Discard,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("exit code %d; lost rank %d: %s\n", report.Code, report.Lost[0].Rank, report.Lost[0].How)
	// Output:
	// [0] 3 ranks are left
	// exit code 0; lost rank 2: killed by SIGKILL
}
