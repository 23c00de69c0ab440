package job

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/enginetest"
	"github.com/tutti-go/tutti/internal/jobtls"
	"github.com/tutti-go/tutti/internal/kernel"
)

// suite runs the conformance suite, each case on a group of its own, and then compares the ranks' failures.
// The first failed case ends it. All ranks must run it with the same environment.
func suite(ctx context.Context, e engine.Engine) error {
	if got, want := fmt.Sprint(e.SameHost()), os.Getenv("TUTTI_TEST_WANT"); got != want {
		return fmt.Errorf("the ranks' hosts are %v, want %v", got, want)
	}
	if err := pairs(ctx, e); err != nil {
		return err
	}
	s := &suiteRun{e: e}
	opt := enginetest.Options{Light: true, RankOrder: len(slices.Compact(slices.Sorted(slices.Values(e.SameHost())))) == 1}
	stride, err := strconv.Atoi(os.Getenv("TUTTI_TEST_STRIDE"))
	if err != nil {
		return err
	}
	for i, c := range enginetest.Cases(opt) {
		if c.Ranks > e.Size() || i%stride != 0 || !strings.Contains(c.Name, os.Getenv("TUTTI_TEST_CASE")) {
			continue
		}
		if err := s.run(ctx, uint64(i+2), &c); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return s.compare(ctx)
}

// A suiteRun is one rank's run of the suite.
type suiteRun struct {
	e     engine.Engine
	names []string
	said  []byte // for each case a digest of this rank's result; zeros: none
}

// run runs one case on a group of the lowest ranks, and records a hash of the failure that this rank was
// told. Other ranks record zeros. An error means that the case failed on this rank.
func (s *suiteRun) run(ctx context.Context, seq uint64, c *enginetest.Case) error {
	s.names = append(s.names, c.Name)
	s.said = append(s.said, make([]byte, sha256.Size)...)
	if s.e.Rank() >= c.Ranks {
		return nil
	}
	members := make([]int, c.Ranks)
	for r := range members {
		members[r] = r
	}
	sub, err := s.e.Sub(ctx, seq, members)
	if err != nil {
		return err
	}
	told, err := c.RunOn(ctx, sub)
	if told == nil || err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(told.Error()))
	copy(s.said[len(s.said)-len(sum):], sum[:])
	return nil
}

// compare checks that all ranks were told the same failure in every case. It runs an AllGather of all ranks.
func (s *suiteRun) compare(ctx context.Context) error {
	mem := func(b []byte) engine.Mem {
		return engine.Mem{Ptr: unsafe.Pointer(unsafe.SliceData(b)), N: len(b), Type: kernel.Uint8}
	}
	all := make([]byte, s.e.Size()*len(s.said))
	call := engine.Call{Verb: engine.AllGather, Dst: mem(all), Src: mem(s.said)}
	if err := s.e.Run(ctx, 1, []engine.Call{call}); err != nil {
		return err
	}
	none := make([]byte, sha256.Size)
	for i, name := range s.names {
		var first []byte
		for r := range s.e.Size() {
			at := r*len(s.said) + i*sha256.Size
			switch told := all[at : at+sha256.Size]; {
			case bytes.Equal(told, none):
			case first == nil:
				first = told
			case !bytes.Equal(first, told):
				return fmt.Errorf("%s: rank %d was told something else than the ranks before it", name, r)
			}
		}
	}
	return nil
}

// encrypted returns the environment that makes a job encrypt its traffic.
func encrypted(t *testing.T) []string {
	t.Helper()
	cert, key, err := jobtls.NewCertificate(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"TUTTI_TEST_CERT=" + string(cert), "TUTTI_TEST_KEY=" + string(key)}
}

// TestSuite runs the suite with all ranks on one host, on separate hosts, and on some of both.
func TestSuite(t *testing.T) {
	for name, env := range map[string][]string{
		"shared memory":  {"TUTTI_TEST_WANT=[0 0 0 0 0]"},
		"network":        {"TUTTI_TEST_NETWORK=1", "TUTTI_TEST_WANT=[0 1 2 3 4]"},
		"network, TLS":   append(encrypted(t), "TUTTI_TEST_NETWORK=1", "TUTTI_TEST_WANT=[0 1 2 3 4]"),
		"hierarchy":      {"TUTTI_TEST_HOSTS=a b a b c", "TUTTI_TEST_WANT=[0 1 0 1 4]"},
		"hierarchy, TLS": append(encrypted(t), "TUTTI_TEST_HOSTS=a b a b c", "TUTTI_TEST_WANT=[0 1 0 1 4]"),
	} {
		stride := 1
		if strings.Contains(name, "TLS") {
			stride = 5 // the other cases do not depend on TLS
		}
		t.Run(name, func(t *testing.T) { start(t, 5, "suite", append(env, sample(stride))...).wait(t) })
	}
}

// sample selects every stride-th case of the suite, and fewer under -short.
func sample(stride int) string {
	if testing.Short() {
		stride = 11
	}
	return fmt.Sprint("TUTTI_TEST_STRIDE=", stride)
}
