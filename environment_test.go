package tutti_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
)

// TestEnvironmentValues sets each variable to a value that cannot be parsed. Join, and Local where it reads
// the variable, return ErrInvalid with the name and the value.
func TestEnvironmentValues(t *testing.T) {
	const bad = "nonsense"
	for name, local := range map[string]bool{
		"TUTTI_HOST_STAGING": true, "TUTTI_KERNEL": true, "TUTTI_LATE": false, "TUTTI_NO_ENCRYPTION": false, "TUTTI_RANK": false,
		"TUTTI_SIZE": false, "TUTTI_STORE": false, "TUTTI_ADDR": false, "TUTTI_ATTEMPT": false, "TUTTI_EPOCH": false,
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TUTTI_RANK", "0")
			t.Setenv("TUTTI_SIZE", "1")
			t.Setenv(name, bad)
			c, err := tutti.Join(t.Context(), tutti.Config{})
			if !errors.Is(err, tutti.ErrInvalid) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), bad) {
				t.Errorf("Join: %v", err)
			}
			if err == nil {
				c.Close()
			}
			err = tutti.RunLocal(t.Context(), 2, tutti.Config{}, func(context.Context, *tutti.Comm) error { return nil })
			if local && (!errors.Is(err, tutti.ErrInvalid) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), bad)) {
				t.Errorf("RunLocal: %v", err)
			}
			if !local && err != nil {
				t.Errorf("RunLocal: %v", err)
			}
		})
	}
	for name, other := range map[string]string{"TUTTI_CERT": "TUTTI_KEY", "TUTTI_KEY": "TUTTI_CERT"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, bad)
			_, err := tutti.Join(t.Context(), tutti.Config{})
			if want := name + " is set but " + other + " is not"; !errors.Is(err, tutti.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("Join: %v, want %q", err, want)
			}
		})
	}
}

// TestEnvironmentSwitches checks that every value of strconv.ParseBool is understood: with TUTTI_NO_ENCRYPTION
// a job off the loopback needs no certificate, so its address is accepted.
func TestEnvironmentSwitches(t *testing.T) {
	cert, key, err := tutti.NewJobCert(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"1", "true", "TRUE"} {
		t.Setenv("TUTTI_NO_ENCRYPTION", value)
		errs := joinTwo(t, tutti.Config{Cert: cert, Key: key, NoSharedMemory: true, Logger: slog.New(slog.DiscardHandler)},
			func(_ context.Context, c *tutti.Comm) error {
				if in := c.Info(); in.Transport != "tcp" {
					return errors.New(in.Transport)
				}
				return nil
			})
		if err := errors.Join(errs[:]...); err != nil {
			t.Errorf("%s: %v", value, err)
		}
	}
}
