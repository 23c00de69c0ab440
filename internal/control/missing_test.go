package control

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-go/tutti/internal/proctest"
)

// TestEveryRankIsTold starts a job without rank 2, in virtual time. Rank 0 logs every ten seconds that it is
// missing. The contexts of the ranks end at about the same time, in any order. Each error names rank 2.
func TestEveryRankIsTold(t *testing.T) {
	for name, encrypted := range map[string]bool{"plain": false, "encrypted": true} {
		seeds := uint64(200)
		if testing.Short() || encrypted {
			seeds = 20
		}
		t.Run(name, func(t *testing.T) {
			for seed := range seeds {
				synctest.Test(t, func(t *testing.T) {
					var config *tls.Config
					if encrypted {
						config = newTLS(t) // inside the bubble, which has its own time
					}
					withoutRank2(t, seed, config)
				})
			}
		})
	}
}

// withoutRank2 runs ranks 0, 1 and 3 of 4. Each rank is a goroutine that writes only its own error.
func withoutRank2(t *testing.T, seed uint64, encrypt *tls.Config) {
	const size = 4
	g := &virtualListener{arrive: make(chan net.Conn, size), shut: make(chan struct{})}
	s := &scenario{seed: seed}
	for range size {
		s.hosts = append(s.hosts, &virtualHost{fails: -1})
	}
	s.hosts[0].listener = g
	rnd := rand.New(rand.NewPCG(seed, 3))
	log := new(proctest.Output)
	var errs [size]error
	var ranks sync.WaitGroup
	for _, r := range []int{0, 1, 3} {
		m := newMember(Config{
			Rank: r, Size: size, Listener: g, Secret: []byte("secret"), TLS: encrypt, HostTimeout: 24 * time.Hour,
			Logger: slog.New(slog.NewTextHandler(log, nil)),
		})
		limit := 25*time.Second + time.Duration(rnd.IntN(1<<rnd.IntN(24))) // differences of any magnitude up to 16 ms
		ranks.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if r == 0 {
				errs[r] = m.serveJoin(ctx)
				_ = m.server.close()
			} else {
				errs[r] = m.joinOver(ctx, s.connect(r, g))
			}
		})
	}
	ranks.Wait()
	for _, r := range []int{0, 1, 3} {
		err := errs[r]
		if err == nil || !strings.Contains(err.Error(), "3 of 4 ranks joined; rank 2 missing") {
			t.Errorf("seed %d, rank %d: %v", seed, r, err)
		}
	}
	lines := log.Lines()
	for i, line := range lines {
		if want := fmt.Sprintf(`msg="tutti: Join waits for ranks" missing="rank 2" joined="3 of 4" waited=%d0s`, i+1); !strings.Contains(line, want) {
			t.Errorf("seed %d: %s, want %s", seed, line, want)
		}
	}
	if len(lines) != 2 {
		t.Errorf("seed %d: %d lines in 25 s", seed, len(lines))
	}
}

// TestRootIsSilent has the context of rank 1 end while rank 0's process is stopped: Join returns soon, without
// the missing ranks.
func TestRootIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scenario{hosts: []*virtualHost{{fails: -1}, {fails: -1}}}
		g := &virtualListener{arrive: make(chan net.Conn, 1), shut: make(chan struct{})}
		m := newMember(Config{Rank: 1, Size: 3, Secret: []byte("secret"), Logger: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		go func() {
			c, err := g.Accept()
			if err == nil {
				root := newConn(c)
				err = root.send(&frame{Kind: challenge, Version: version, Build: new(Version), Nonce: newNonce()})
			}
			if err != nil {
				t.Error(err)
			}
		}()
		err := m.joinOver(ctx, s.connect(1, g))
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not all ranks have joined") {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second+answerTime+100*time.Millisecond {
			t.Errorf("Join returned after %v", took)
		}
	})
}

// TestRemindOfRankZero checks the log of a rank that cannot reach rank 0.
func TestRemindOfRankZero(t *testing.T) {
	addr := proctest.FreeAddr(t)
	synctest.Test(t, func(t *testing.T) {
		log := new(proctest.Output)
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		_, err := Join(ctx, Config{Rank: 1, Size: 3, Addr: addr, Logger: slog.New(slog.NewTextHandler(log, nil))})
		if !errors.Is(err, context.DeadlineExceeded) && err == nil {
			t.Error("joined")
		}
		if n := strings.Count(log.String(), `msg="tutti: Join waits for rank 0" address=`+addr); n != 2 {
			t.Errorf("%d lines in 25 s:\n%s", n, log)
		}
	})
}
