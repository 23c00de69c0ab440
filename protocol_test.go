package tutti_test

import (
	"context"
	"log/slog"
	"net"
	"testing"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/jobstore"
	"github.com/tutti-go/tutti/store"
)

// TestFirstProtocolAddress checks that ranks of protocol 1, which exchange rank 0's address as text under
// jobstore.Address(1), and ranks of this version reach each other through a store. Otherwise neither could
// report the other's version. The test plays the rank of protocol 1; a goroutine is in Join until the test
// cancels it.
func TestFirstProtocolAddress(t *testing.T) {
	const secret = "secret"
	for _, rank := range []string{"0", "1"} {
		s, err := store.Listen(t.Context(), "127.0.0.1:0", store.Config{Secret: []byte(secret), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for name, value := range map[string]string{
			"TUTTI_RANK": rank, "TUTTI_SIZE": "2", "TUTTI_STORE": s.Addr().String(), "TUTTI_SECRET": secret, "TUTTI_ATTEMPT": "0",
		} {
			t.Setenv(name, value)
		}
		keys := store.Prefix(s.Store(), jobstore.Ranks("0"))
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		over := make(chan struct{})
		go func() {
			defer close(over)
			_, _ = tutti.Join(ctx, tutti.Config{Logger: slog.New(slog.DiscardHandler)})
		}()
		if rank == "0" {
			addr, err := keys.Get(ctx, jobstore.Address(1))
			if err != nil {
				t.Fatal(err)
			}
			c, err := net.Dial("tcp", string(addr))
			if err != nil {
				t.Errorf("a rank of protocol 1 cannot connect to %q: %v", addr, err)
			} else {
				c.Close()
			}
		} else {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if err := keys.Set(ctx, jobstore.Address(1), []byte(l.Addr().String())); err != nil {
				t.Fatal(err)
			}
			context.AfterFunc(ctx, func() { l.Close() })
			if c, err := l.Accept(); err != nil {
				t.Errorf("a rank does not connect to rank 0 of protocol 1: %v", err)
			} else {
				c.Close()
			}
		}
		cancel()
		<-over
	}
}
