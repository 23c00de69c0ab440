package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/launch"
	"github.com/tutti-go/tutti/store"
)

// TestMain lets the test binary act as tutti itself, as its watchdog, as a rank, and as a process
// that a rank leaves behind. TUTTI_TEST_ACT selects the act; a rank program that returns an error
// exits with code 1.
func TestMain(m *testing.M) {
	if code, was := runWatchdog(); was {
		os.Exit(code)
	}
	switch act := os.Getenv("TUTTI_TEST_ACT"); {
	case act == "":
		os.Exit(m.Run())
	case act == "confined", act == "confined one" && os.Getenv("TUTTI_RANK") == "1":
		fmt.Fprintln(os.Stderr, "confine:", confine())
		os.Exit(1)
	case act == "tutti", act == "confined one":
		os.Exit(app{damage: damageFromEnv(), slow: slowFromEnv()}.dispatch(os.Args[1:]))
	case act == "library" && os.Getenv("TUTTI_RANK") == "":
		os.Exit(runLibrary())
	case act == "leftover":
		fmt.Println("leftover")
		time.Sleep(time.Hour)
	case os.Getenv("TUTTI_RANK") == "" || os.Getenv("TUTTI_LIFELINE") != "":
		os.Exit(dispatch(os.Args[1:]))
	}
	if err := rankPrograms[os.Getenv("TUTTI_TEST_ACT")](os.Getenv("RANK") == "1"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// rankPrograms are the programs that ranks run. isRank1 is set in rank 1, which is the
// rank that fails.
var rankPrograms = map[string]func(isRank1 bool) error{
	"hello":  hello,
	"exit 3": afterJoin(func() { os.Exit(3) }),
	"panic":  afterJoin(func() { panic("no way") }),
	"killed": afterJoin(func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }),
	"stubborn": func(isRank1 bool) error {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		return afterJoin(func() { os.Exit(3) })(isRank1)
	},
	"panic with Close": reducing(func(c *tutti.Comm) error {
		defer c.Close()
		panic("no way")
	}),
	"roots differ": rootsDiffer,
	"closes early": reducing((*tutti.Comm).Close),
	"exits early":  reducing(func(*tutti.Comm) error { return nil }),
	"leaving": func(isRank1 bool) error {
		if err := startOrphan(); err != nil {
			return err
		}
		return afterJoin(func() { os.Exit(3) })(isRank1)
	},
	"leaving well": func(bool) error { return startOrphan() },
	"stays away": func(isRank1 bool) error {
		if isRank1 {
			time.Sleep(time.Hour)
		}
		if err := awaitRanks(2); err != nil { // both must arrive in time, however slowly they start
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		_, err := tutti.Join(ctx, tutti.Config{})
		return err
	},
	"goes away": func(isRank1 bool) error {
		if isRank1 {
			return nil
		}
		_, err := tutti.Join(context.Background(), tutti.Config{})
		return err
	},
	"waiting": func(bool) error {
		if err := startOrphan(); err != nil {
			return err
		}
		fmt.Println("ready")
		time.Sleep(time.Hour)
		return nil
	},
	"gentle": func(bool) error {
		s := make(chan os.Signal, 1)
		signal.Notify(s, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1)
		fmt.Println("ready")
		fmt.Println("got", <-s)
		return nil
	},
	"second time": func(isRank1 bool) error {
		if isRank1 && os.Getenv("TUTTI_ATTEMPT") == "0" {
			return errors.New("not yet")
		}
		return hello(isRank1)
	},
	"impostor": func(isRank1 bool) error {
		if err := hello(isRank1); err != nil || !isRank1 {
			return err
		}
		// A second process claims to be rank 1.
		self, err := os.Executable()
		if err != nil {
			return err
		}
		text, err := exec.Command(self).CombinedOutput()
		fmt.Printf("the impostor said: %s", text)
		if err == nil {
			return errors.New("an impostor has joined")
		}
		return nil
	},
	"environment": func(bool) error {
		for _, name := range strings.Fields(os.Getenv("TUTTI_TEST_NAMES")) {
			fmt.Printf("%s=%s\n", name, os.Getenv(name))
		}
		return nil
	},
	"trainer":   trainer,
	"stays":     ignoreSignals,
	"outlived":  shrinkWithoutStopped,
	"hangs":     waiting(recvUnmatched),
	"deaf":      waiting(stopSelf),
	"quits":     waiting(exit3),
	"unwelcome": continueWithout(awaitAdmission),
	"hopeless":  continueWithout(failAtOnce),
	"early": func(isRank1 bool) error {
		if isRank1 {
			os.Exit(3)
		}
		_, err := tutti.Join(context.Background(), tutti.Config{})
		return err
	},
	"besieged": func(bool) error {
		c, err := tutti.Join(context.Background(), tutti.Config{})
		if err != nil {
			return err
		}
		fmt.Println("ready")
		for { // until the test ends it
			sum := []int{1}
			if err := c.AllReduce(context.Background(), tutti.Of(sum), tutti.Sum); err != nil || sum[0] != 2 {
				return fmt.Errorf("%d, %w", sum[0], err)
			}
			done := []int{0}
			if _, err := os.Stat(os.Getenv("TUTTI_TEST_GATE")); err == nil {
				done[0] = 1
			}
			if err := c.AllReduce(context.Background(), tutti.Of(done), tutti.Max); err != nil {
				return err
			}
			if done[0] == 1 {
				fmt.Println("undisturbed")
				return c.Close()
			}
			time.Sleep(time.Millisecond)
		}
	},
	"terminal": func(bool) error {
		f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
		if err == nil {
			_, err = fmt.Fprintln(f, "written past the launcher")
		}
		fmt.Println(err)
		return nil
	},
	"stdin": func(bool) error {
		text, err := io.ReadAll(os.Stdin)
		fmt.Printf("read %q\n", text)
		return err
	},
}

// runLibrary calls launch.Run in a process of the terminal's session. tutti run does
// not.
func runLibrary() int {
	r, err := launch.Run(context.Background(), launch.Config{
		Command: []string{"sh", "-c", "echo ready; read word; echo got $word"}, Stdin: os.Stdin,
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return r.Code
}

// hello runs one AllReduce.
func hello(bool) error {
	c, err := tutti.Join(context.Background(), tutti.Config{})
	if err != nil {
		return err
	}
	sum := []int{c.Rank()}
	if err := c.AllReduce(context.Background(), tutti.Of(sum), tutti.Sum); err != nil {
		return err
	}
	fmt.Printf("sum %d of %d, attempt %s\n", sum[0], c.Size(), os.Getenv("TUTTI_ATTEMPT"))
	return c.Close()
}

// trainer uses the store as a PyTorch program does: each rank increments a counter, and
// rank 0 sets an id under the same key in every attempt. In the first attempt rank 1
// fails.
func trainer(isRank1 bool) error {
	ctx := context.Background()
	c, err := store.Dial(ctx, net.JoinHostPort(os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT")), store.Config{Plain: true})
	if err != nil {
		return err
	}
	defer c.Close()
	n, err := c.CountIn(ctx)
	if err != nil {
		return err
	}
	attempt, key := os.Getenv("TORCHELASTIC_RESTART_COUNT"), "default_pg/0//cuda//0"
	if os.Getenv("RANK") == "0" {
		if err := c.Set(ctx, key, []byte("id "+attempt)); err != nil {
			return err
		}
	}
	id, err := c.Get(ctx, key)
	if err != nil {
		return err
	}
	fmt.Printf("attempt %s: %s, counted in before: %v\n", attempt, id, n > 2)
	if isRank1 && attempt == "0" {
		return errors.New("not yet")
	}
	return nil
}

// awaitRanks waits until the given number of ranks has arrived here.
func awaitRanks(ranks int) error {
	ctx := context.Background()
	c, err := store.Dial(ctx, os.Getenv("TUTTI_STORE"), store.Config{Secret: []byte(os.Getenv("TUTTI_SECRET"))})
	if err != nil {
		return err
	}
	return errors.Join(c.Barrier(ctx, "test", ranks), c.Close())
}

// afterJoin returns a rank program that joins. Then rank 1 calls f while the other ranks wait in a
// barrier. The other ranks ignore the barrier's error and stay until the launcher ends them.
func afterJoin(f func()) func(isRank1 bool) error {
	return func(isRank1 bool) error {
		c, err := tutti.Join(context.Background(), tutti.Config{})
		if err != nil {
			return err
		}
		// Rank 1 may exit before the other ranks have left this barrier.
		if err := c.Barrier(context.Background()); err != nil && isRank1 {
			return err
		}
		if isRank1 {
			fmt.Println("the last of it")
			f()
		}
		_ = c.Barrier(context.Background()) // rank 1 never enters this barrier
		time.Sleep(time.Hour)
		return nil
	}
}

// reducing returns a rank program in which all ranks but rank 1 call AllReduce, and rank 1 calls f.
func reducing(f func(*tutti.Comm) error) func(isRank1 bool) error {
	return func(isRank1 bool) error {
		ctx := context.Background()
		c, err := tutti.Join(ctx, tutti.Config{})
		if err != nil {
			return err
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		if isRank1 {
			return f(c)
		}
		return c.AllReduce(ctx, tutti.Of([]int32{1}), tutti.Sum)
	}
}

// rootsDiffer calls a Broadcast, which returns on its root before the other ranks have called it. Rank 1 names
// itself as the root. Ranks 0 and 1 print the error, of the Broadcast or of Close, before one of them is ended.
func rootsDiffer(isRank1 bool) error {
	signal.Ignore(syscall.SIGTERM)
	ctx := context.Background()
	c, err := tutti.Join(ctx, tutti.Config{})
	if err != nil {
		return err
	}
	root := 0
	if isRank1 {
		root = 1
	}
	err = c.Broadcast(ctx, tutti.Of([]int32{1}), root)
	if err == nil {
		err = c.Close()
	}
	if e := (*tutti.Error)(nil); errors.As(err, &e) {
		fmt.Printf("rank %d: %s #%d\n", c.Rank(), e.Op, e.Seq)
	}
	return err
}

// startOrphan starts a process in another session and process group, whose parent exits. It returns
// when the process runs and its parent has exited.
func startOrphan() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command("sh", "-c", "\"$0\" & exec cat", self)
	cmd.Env = append(os.Environ(), "TUTTI_TEST_ACT=leftover")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	// The output proves that the process runs, so that its parent may exit.
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "leftover\n" {
		return fmt.Errorf("%q, %w", line, err)
	}
	if err := in.Close(); err != nil {
		return err
	}
	return cmd.Wait()
}
