package tutti_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/jobstore"
	"github.com/tutti-go/tutti/internal/proctest"
	"github.com/tutti-go/tutti/store"
)

// startRanksFromEnv starts ranks as processes that find their rank in the environment, and returns the output
// and the exit error of each. It waits for all of them. Each process has a goroutine that writes only its own
// elements of outs and errs.
func startRanksFromEnv(t *testing.T, envs ...[]string) (outs []string, errs []error) {
	t.Helper()
	outs, errs = make([]string, len(envs)), make([]error, len(envs))
	self := proctest.Self(t)
	var wg sync.WaitGroup
	for i, env := range envs {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), self)
			// Programs with the race detector sleep for a second at exit by
			// default.
			cmd.Env = append(append(os.Environ(), "TUTTI_TEST_RANK=-1", "GORACE=atexit_sleep_ms=0"), env...)
			out, err := cmd.CombinedOutput()
			outs[i], errs[i] = string(out), err
		})
	}
	wg.Wait()
	return outs, errs
}

// TestJoinStore has three processes join through a store like a launcher's, or like that of torchrun's agent,
// and checks that the store records each of them as joined.
func TestJoinStore(t *testing.T) {
	for name, plain := range map[string]bool{"launcher": false, "torchrun's agent": true} {
		t.Run(name, func(t *testing.T) {
			config := store.Config{Plain: plain, Logger: slog.New(slog.DiscardHandler)}
			if !plain {
				config.Secret = []byte("secret")
			}
			s, err := store.Listen(t.Context(), "127.0.0.1:0", config)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			host, port, _ := strings.Cut(s.Addr().String(), ":")
			var envs [][]string
			for r := range 3 {
				env := []string{fmt.Sprint("TUTTI_RANK=", r), "TUTTI_SIZE=3", "TUTTI_STORE=" + s.Addr().String(), "TUTTI_SECRET=secret"}
				if plain {
					env = []string{
						fmt.Sprint("RANK=", r), "WORLD_SIZE=3", "MASTER_ADDR=" + host, "MASTER_PORT=" + port,
						"TORCHELASTIC_USE_AGENT_STORE=True",
					}
				}
				envs = append(envs, env)
			}
			outs, errs := startRanksFromEnv(t, envs...)
			if err := errors.Join(errs...); err != nil {
				t.Error(err, outs)
			}
			for r := range 3 {
				ok, err := store.Prefix(s.Store(), jobstore.Ranks("")).Check(t.Context(), jobstore.Joined(r))
				if err != nil || !ok {
					t.Errorf("rank %d is not recorded, %v", r, err)
				}
			}
		})
	}
}

// TestJoinStoreMissing starts a job of three ranks without rank 2, with rank 1 twice, with a wrong secret and
// with another size. Every process exits with an error that says why; the first rank 1 waits in a goroutine
// until rank 0 times out. The store counts the two refused processes that know the secret.
func TestJoinStoreMissing(t *testing.T) {
	t.Parallel() // mostly waits
	s, err := store.Listen(t.Context(), "127.0.0.1:0", store.Config{Secret: []byte("secret"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	env := func(rank int, secret string) []string {
		return []string{fmt.Sprint("TUTTI_RANK=", rank), "TUTTI_SIZE=3", "TUTTI_STORE=" + s.Addr().String(), "TUTTI_SECRET=" + secret}
	}
	// The refused process must not be the first to write the size.
	if err := store.Prefix(s.Store(), jobstore.Ranks("")).Set(t.Context(), jobstore.Size, []byte("3")); err != nil {
		t.Fatal(err)
	}
	// Rank 1 waits, and all refused processes have exited, when rank 0 starts with a short
	// timeout.
	proctest.Self(t)
	type outcome struct {
		outs []string
		errs []error
	}
	first := make(chan outcome, 1)
	go func() {
		outs, errs := startRanksFromEnv(t, env(1, "secret"))
		first <- outcome{outs, errs}
	}()
	if err := store.Prefix(s.Store(), jobstore.Ranks("")).Wait(t.Context(), jobstore.Rank(1)); err != nil {
		t.Fatal(err)
	}
	outs, errs := startRanksFromEnv(t, env(1, "secret"), env(2, "wrong"), append(env(2, "secret"), "TUTTI_SIZE=4"))
	more, bad := startRanksFromEnv(t, append(env(0, "secret"), "TUTTI_TEST_TIMEOUT=5s"))
	waited := <-first
	outs, errs = slices.Concat(outs, more, waited.outs), slices.Concat(errs, bad, waited.errs)
	for i, err := range errs {
		if err == nil {
			t.Errorf("process %d has joined", i)
		}
	}
	all := strings.Join(outs, "")
	for says, times := range map[string]int{
		"2 of 3 ranks joined; rank 2 missing": 2, "rank 1 is already in the job": 1, "the secrets differ": 1,
		"it was started for a job of 4 ranks, this job has 3": 1,
	} {
		if strings.Count(all, says) != times {
			t.Errorf("%q is not there %d times:\n%s", says, times, all)
		}
	}
	if n, err := store.Prefix(s.Store(), jobstore.Ranks("")).QueueLen(t.Context(), jobstore.Refused); n != 2 || err != nil {
		t.Errorf("the job was told of %d refusals, %v", n, err)
	}
}

// TestJoinAgain has two processes join, leave and join again, three times each, through one store.
func TestJoinAgain(t *testing.T) {
	s, err := store.Listen(t.Context(), "127.0.0.1:0", store.Config{Secret: []byte("secret")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var envs [][]string
	for r := range 2 {
		envs = append(envs, []string{
			fmt.Sprint("TUTTI_RANK=", r), "TUTTI_SIZE=2", "TUTTI_STORE=" + s.Addr().String(), "TUTTI_SECRET=secret", "TUTTI_TEST_TIMES=3",
		})
	}
	if outs, errs := startRanksFromEnv(t, envs...); errors.Join(errs...) != nil {
		t.Error(errs, outs)
	}
}

// TestJoinReplaced starts a second process as a rank whose first process waits in Join: it is refused with
// the first one's number. After the first is killed, three new processes join, and then three more.
func TestJoinReplaced(t *testing.T) {
	for name, plain := range map[string]bool{"launcher": false, "torchrun's agent": true} {
		for _, victim := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s/rank %d", name, victim), func(t *testing.T) {
				const secret = "0123456789abcdef0123456789abcdef"
				config := store.Config{Plain: plain, Logger: slog.New(slog.DiscardHandler)}
				if !plain {
					config.Secret = []byte(secret)
				}
				s, err := store.Listen(t.Context(), "127.0.0.1:0", config)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				host, port, _ := strings.Cut(s.Addr().String(), ":")
				env := func(rank int) []string {
					if plain {
						return []string{
							fmt.Sprint("RANK=", rank), "WORLD_SIZE=3", "MASTER_ADDR=" + host, "MASTER_PORT=" + port,
							"TORCHELASTIC_USE_AGENT_STORE=True", "TORCHELASTIC_RESTART_COUNT=0",
						}
					}
					return []string{
						fmt.Sprint("TUTTI_RANK=", rank), "TUTTI_SIZE=3", "TUTTI_STORE=" + s.Addr().String(), "TUTTI_SECRET=" + secret, "TUTTI_ATTEMPT=0",
					}
				}
				keys := store.Prefix(s.Store(), jobstore.Ranks("0"))
				first := exec.CommandContext(t.Context(), proctest.Self(t))
				first.Env = append(append(os.Environ(), "TUTTI_TEST_RANK=-1"), env(victim)...)
				if err := first.Start(); err != nil {
					t.Fatal(err)
				}
				waits := []string{jobstore.Rank(victim)}
				if victim == 0 {
					waits = append(waits, jobstore.Address(1))
				}
				if err := keys.Wait(t.Context(), waits...); err != nil {
					t.Fatal(err)
				}
				outs, errs := startRanksFromEnv(t, env(victim))
				if want := fmt.Sprintf("rank %d is already in the job: process %d on ", victim, first.Process.Pid); errs[0] == nil || !strings.Contains(outs[0], want) {
					t.Errorf("%v: %s; want %q", errs[0], outs[0], want)
				}
				_ = first.Process.Kill()
				if err := first.Wait(); err == nil {
					t.Error("it was not killed")
				}
				outs, errs = startRanksFromEnv(t, env(0), env(1), env(2))
				if err := errors.Join(errs...); err != nil {
					t.Error(err, outs)
				}
				// Another program of the same job, with the same store.
				outs, errs = startRanksFromEnv(t, env(0), env(1), env(2))
				if err := errors.Join(errs...); err != nil {
					t.Error(err, outs)
				}
			})
		}
	}
}

// TestJoinNoAddress checks the error if a launcher has not set the address.
func TestJoinNoAddress(t *testing.T) {
	t.Setenv("OMPI_COMM_WORLD_RANK", "1")
	t.Setenv("OMPI_COMM_WORLD_SIZE", "2")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := tutti.Join(ctx, tutti.Config{})
	if !errors.Is(err, tutti.ErrInvalid) || !strings.Contains(err.Error(), "Open MPI says which rank this is, but not where") {
		t.Error(err)
	}
}
