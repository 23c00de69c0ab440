package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
)

var endOfRank0 = regexp.MustCompile(`tutti: rank 0 was in AllReduce#2 .*(ended by tutti: killed by SIGTERM|exit code 1)\n`)

// TestActivity stops jobs whose ranks hang, and has a job fail. The report names each
// rank's activity and the ranks that the others waited for, and ranks write dumps.
func TestActivity(t *testing.T) {
	skipUnlessLinux(t)
	for act, c := range map[string]struct {
		sig   syscall.Signal // sent to the launcher when all ranks hang; 0: none
		code  int
		says  []string
		files int
	}{
		// A rank that is ended later may have noticed the end of another.
		"hangs": {syscall.SIGTERM, 143, []string{
			"tutti: stopped by SIGTERM\n", "tutti: rank 0 was in AllReduce#2 (for ", "), waiting for rank 1; ended by tutti: ",
			"tutti: rank 1 last did Barrier#1", ", and waits in Recv from rank 2, tag 7 (for ", "tutti: Rank 1 is behind: ",
		}, 3},
		"deaf": {syscall.SIGINT, 130, []string{
			"tutti: stopped by SIGINT\n", "tutti: rank 1 was stopped (SIGSTOP or a debugger); ended by tutti", "waiting for rank 1; ended by tutti",
			"tutti: stopped ranks: 1 of 3\n",
		}, 2},
		"quits": {0, 3, []string{"tutti: rank 1 failed first: exit code 3", "tutti: rank 0 was in AllReduce#2 "}, 2},
	} {
		t.Run(act, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "dumps")
			j := start(t, act, nil, "-n", "3", "-grace", "30s", "-flight-dir", dir)
			if c.sig != 0 {
				j.out.Await(t, "hangs", 3)
				awaitStop(t, j.out.String())
				if err := j.cmd.Process.Signal(c.sig); err != nil {
					t.Fatal(err)
				}
			}
			if act == "deaf" { // a second signal ends it before the grace time does
				for end := time.Now().Add(deadline); len(j.processes()) > 3 && time.Now().Before(end); {
					time.Sleep(time.Millisecond)
				}
				if err := j.cmd.Process.Signal(c.sig); err != nil {
					t.Fatal(err)
				}
			}
			if code := j.wait(t); code != c.code {
				t.Errorf("code %d, want %d", code, c.code)
			}
			j.checkOutput(t, append(c.says, "tutti inspect "+dir+"/*\n")...)
			// Each of the two waiting ranks is ended, or fails because the other was.
			if act != "deaf" && !endOfRank0.MatchString(j.out.String()) {
				t.Errorf("it does not say how rank 0 ended:\n%s", &j.out)
			}
			j.checkNoProcesses(t)
			files, _ := filepath.Glob(dir + "/*.json") // a rank that is killed while writing leaves a temporary file
			var out, errs bytes.Buffer
			if code := inspectTo(files, &out, &errs); code != 0 || len(files) != c.files || !strings.HasPrefix(out.String(), "Rank 1 is") {
				t.Errorf("%v: code %d: %s%s", files, code, &out, &errs)
			}
		})
	}
}

// awaitStop waits until the process that announces it has stopped itself. It does nothing if none
// announces it, and fails the test after the deadline.
func awaitStop(t *testing.T, said string) {
	t.Helper()
	m := regexp.MustCompile(`process (\d+) stops`).FindStringSubmatch(said)
	if m == nil {
		return
	}
	for end := time.Now().Add(deadline); ; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile("/proc/" + m[1] + "/stat")
		if err == nil && strings.Contains(string(text), ") T ") {
			return
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("process %s does not stop: %v", m[1], err)
		}
	}
}

// waiting returns a rank program that brings ranks 0 and 2 into AllReduce#2. Each of the two waits
// until its own dump shows that, and sends rank 1 a message. Rank 1 then calls f. The program
// returns the error of the operation that the test ends.
func waiting(f func(ctx context.Context, c *tutti.Comm) error) func(isRank1 bool) error {
	return func(isRank1 bool) error {
		ctx := context.Background()
		c, err := tutti.Join(ctx, tutti.Config{})
		if err != nil {
			return err
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		here := tutti.Of([]byte{0})
		if isRank1 {
			for _, r := range []int{0, 2} {
				if _, err := c.Recv(ctx, r, here, 1); err != nil {
					return err
				}
			}
			return f(ctx, c)
		}
		w, err := c.Batch().AllReduce(tutti.Of(make([]int, 100)), tutti.Sum).Start(ctx)
		if err != nil {
			return err
		}
		if err := awaitDump(c, `"behind":[1]`); err != nil {
			return err
		}
		if err := c.Send(ctx, 1, here, 1); err != nil {
			return err
		}
		fmt.Println("hangs")
		return w.Wait(ctx)
	}
}

// awaitDump waits until a Comm's dump contains text.
func awaitDump(c *tutti.Comm, text string) error {
	for {
		var dump bytes.Buffer
		if err := c.Dump(&dump); err != nil || strings.Contains(dump.String(), text) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// The functions below are rank 1's part.

func recvUnmatched(ctx context.Context, c *tutti.Comm) error {
	w, err := c.Batch().Recv(2, tutti.Of([]byte{0}), 7).Start(ctx)
	if err != nil {
		return err
	}
	if err := awaitDump(c, `"state":"running"`); err != nil {
		return err
	}
	fmt.Println("hangs")
	return w.Wait(ctx)
}

func stopSelf(context.Context, *tutti.Comm) error {
	fmt.Println("hangs: process " + strconv.Itoa(os.Getpid()) + " stops")
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	time.Sleep(time.Hour) // another thread may be stopped first
	return nil
}

func exit3(context.Context, *tutti.Comm) error {
	os.Exit(3)
	return nil
}
