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

// TestMain lets this binary be more things: tutti itself, the watchdog of tutti
// run, a rank, and what a rank leaves behind.
func TestMain(m *testing.M) {
	if code, was := watchdog(); was {
		os.Exit(code)
	}
	switch act := os.Getenv("TUTTI_TEST_ACT"); {
	case act == "":
		os.Exit(m.Run())
	case act == "confined", act == "confined one" && os.Getenv("TUTTI_RANK") == "1":
		fmt.Fprintln(os.Stderr, "confine:", confine())
		os.Exit(1)
	case act == "tutti", act == "confined one":
		os.Exit(app{damage: damage(), slow: slow()}.dispatch(os.Args[1:]))
	case act == "library" && os.Getenv("TUTTI_RANK") == "":
		os.Exit(library())
	case act == "leftover":
		fmt.Println("leftover")
		time.Sleep(time.Hour)
	case os.Getenv("TUTTI_RANK") == "" || os.Getenv("TUTTI_LIFELINE") != "":
		os.Exit(dispatch(os.Args[1:]))
	}
	if err := acts[os.Getenv("TUTTI_TEST_ACT")](os.Getenv("RANK") == "1"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// acts is what ranks do; one tells rank 1, which is the one that fails.
var acts = map[string]func(one bool) error{
	"hello":  hello,
	"exit 3": together(func() { os.Exit(3) }),
	"panic":  together(func() { panic("no way") }),
	"killed": together(func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }),
	"stubborn": func(one bool) error {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		return together(func() { os.Exit(3) })(one)
	},
	"leaving": func(one bool) error {
		if err := leaveBehind(); err != nil {
			return err
		}
		return together(func() { os.Exit(3) })(one)
	},
	"leaving well": func(bool) error { return leaveBehind() },
	"stays away": func(one bool) error {
		if one {
			time.Sleep(time.Hour)
		}
		if err := meet(2); err != nil { // so that both are in time, however slowly they start
			return err
		}
		_, err := tutti.Join(context.Background(), tutti.Config{Timeout: 3 * time.Second})
		return err
	},
	"goes away": func(one bool) error {
		if one {
			return nil
		}
		_, err := tutti.Join(context.Background(), tutti.Config{})
		return err
	},
	"waiting": func(bool) error {
		if err := leaveBehind(); err != nil {
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
	"second time": func(one bool) error {
		if one && os.Getenv("TUTTI_EPOCH") == "0" {
			return errors.New("not yet")
		}
		return hello(one)
	},
	"impostor": func(one bool) error {
		if err := hello(one); err != nil || !one {
			return err
		}
		// Rank 1 once more, from another process.
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
	"stays":     stays,
	"outlived":  outlived,
	"hangs":     waiting(recvInVain),
	"deaf":      waiting(stopSelf),
	"quits":     waiting(exit3),
	"unwelcome": survive(unwelcome),
	"hopeless":  survive(hopeless),
	"early": func(one bool) error {
		if one {
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
		for { // until the test says so
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

// library calls launch.Run in a process of the terminal, which tutti run does not.
func library() int {
	r, err := launch.Run(context.Background(), launch.Config{
		Command: []string{"sh", "-c", "echo ready; read word; echo got $word"}, Stdin: os.Stdin,
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return r.Code
}

// hello is one AllReduce.
func hello(bool) error {
	c, err := tutti.Join(context.Background(), tutti.Config{})
	if err != nil {
		return err
	}
	sum := []int{c.Rank()}
	if err := c.AllReduce(context.Background(), tutti.Of(sum), tutti.Sum); err != nil {
		return err
	}
	fmt.Printf("sum %d of %d, epoch %s\n", sum[0], c.Size(), os.Getenv("TUTTI_EPOCH"))
	return c.Close()
}

// trainer does with the store what a PyTorch program does: all count themselves
// in, and rank 0 tells an id, under the same key in every attempt. In the first
// attempt rank 1 fails.
func trainer(one bool) error {
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
	if one && attempt == "0" {
		return errors.New("not yet")
	}
	return nil
}

// meet waits until so many ranks of the job have come here.
func meet(ranks int) error {
	ctx := context.Background()
	c, err := store.Dial(ctx, os.Getenv("TUTTI_STORE"), store.Config{Secret: []byte(os.Getenv("TUTTI_SECRET"))})
	if err != nil {
		return err
	}
	return errors.Join(c.Barrier(ctx, "test", ranks), c.Close())
}

// together joins, and then rank 1 does something while the others wait for it.
func together(f func()) func(one bool) error {
	return func(one bool) error {
		c, err := tutti.Join(context.Background(), tutti.Config{})
		if err != nil {
			return err
		}
		// Rank 1 may be gone before the others have left this one.
		if err := c.Barrier(context.Background()); err != nil && one {
			return err
		}
		if one {
			fmt.Println("the last of it")
			f()
		}
		_ = c.Barrier(context.Background()) // in vain
		time.Sleep(time.Hour)
		return nil
	}
}

// leaveBehind starts a process that leaves this one's session and group, and
// whose parent ends.
func leaveBehind() error {
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
	// When it has said so it is there, and its parent may go.
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "leftover\n" {
		return fmt.Errorf("%q, %w", line, err)
	}
	if err := in.Close(); err != nil {
		return err
	}
	return cmd.Wait()
}
