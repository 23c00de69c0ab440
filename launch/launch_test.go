package launch

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/jobtls"
	"github.com/tutti-go/tutti/internal/launchenv"
	"github.com/tutti-go/tutti/store"
)

// TestJobCert derives the same certificate from the same secret, and the store accepts
// it.
func TestJobCert(t *testing.T) {
	cert, key, err := jobtls.DeriveCertificate("a secret of some length")
	if err != nil {
		t.Fatal(err)
	}
	again, key2, err := jobtls.DeriveCertificate("a secret of some length")
	if err != nil || !bytes.Equal(cert, again) || !bytes.Equal(key, key2) {
		t.Error("two hosts would not have the same certificate", err)
	}
	if other, _, err := jobtls.DeriveCertificate("another secret"); err != nil || bytes.Equal(cert, other) {
		t.Error("two jobs have the same certificate", err)
	}
	config := store.Config{Secret: []byte(strings.Repeat("s", launchenv.MinSecret)), Cert: cert, Key: key}
	s, err := store.Listen(t.Context(), "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := store.Dial(t.Context(), s.Addr().String(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestConfigErrors checks that Run returns an Error for invalid Configs, a missing program, and a
// store that cannot be reached.
func TestConfigErrors(t *testing.T) {
	secret := strings.Repeat("s", launchenv.MinSecret)
	for says, c := range map[string]Config{
		"no program to run":                {},
		"-1 ranks":                         {Ranks: -1, Command: []string{"x"}},
		"must keep 3 ranks or more":        {Ranks: 2, Min: 3, Command: []string{"x"}},
		"restart all ranks instead":        {Min: 1, Torch: true, Command: []string{"x"}},
		"node 1 of 1 nodes":                {Node: 1, Command: []string{"x"}},
		"needs the address":                {Nodes: 2, Command: []string{"x"}},
		"there is no secret; openssl":      {Nodes: 2, Addr: "h:1", Command: []string{"x"}},
		"the secret has 3 bytes":           {Secret: "abc", Command: []string{"x"}},
		"is not host:port":                 {Addr: "h", Command: []string{"x"}},
		"it has no authentication":         {Nodes: 2, Addr: "h:1", Secret: secret, Torch: true, Command: []string{"x"}},
		"nonexistent-program":              {Command: []string{"nonexistent-program"}},
		"the store of node 0: store: Dial": {Nodes: 2, Node: 1, Addr: "127.0.0.1:1", Secret: secret, JoinTime: time.Millisecond, Command: []string{"x"}},
	} {
		_, err := Run(t.Context(), c)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
}

// TestEnviron checks a rank's variables, that each is set once, and that the launcher's own are
// removed.
func TestEnviron(t *testing.T) {
	h := &host{
		cfg:  &Config{Ranks: 4, Nodes: 2, Node: 1, Secret: "s", Visible: true, Restarts: 3, Env: []string{"A=b", "RANK=9", "TUTTI_CERT=old", "TUTTI_LATE=1", lifelineName + "=3", "CUDA_VISIBLE_DEVICES=5,7"}},
		base: 2, size: 6, storeAddr: "h:1",
	}
	env := h.environ(2, 1, "m:29500")
	for _, want := range []string{
		"A=b", "RANK=3", "WORLD_SIZE=6", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "GROUP_RANK=1", "MASTER_ADDR=m", "MASTER_PORT=29500",
		"TORCHELASTIC_RESTART_COUNT=2", "TORCHELASTIC_MAX_RESTARTS=3", "TORCHELASTIC_USE_AGENT_STORE=False",
		"TUTTI_RANK=3", "TUTTI_SIZE=6", "TUTTI_STORE=h:1", "TUTTI_ATTEMPT=2", "TUTTI_EPOCH=2", "TUTTI_NAME=3", "TUTTI_SECRET=s", "CUDA_VISIBLE_DEVICES=7",
	} {
		if !slices.Contains(env, want) {
			t.Errorf("%s is not in %q", want, env)
		}
	}
	for _, name := range []string{"RANK", "TUTTI_CERT", "TUTTI_LATE", lifelineName, "CUDA_VISIBLE_DEVICES"} {
		n := 0
		for _, e := range env {
			if strings.HasPrefix(e, name+"=") {
				n++
			}
		}
		if want := map[string]int{"RANK": 1, "CUDA_VISIBLE_DEVICES": 1}[name]; n != want {
			t.Errorf("%s is there %d times", name, n)
		}
	}
	if d := visibleDevice(nil, 3); d != "3" {
		t.Errorf("without a list, the device is %q", d)
	}
	h.cfg.Env = []string{"CUDA_VISIBLE_DEVICES="}
	if env := h.environ(2, 1, ""); !slices.Contains(env, "CUDA_VISIBLE_DEVICES=") {
		t.Errorf("with an empty list, a rank may see devices: %q", env)
	}
}

// TestReport checks the text of a Report, which is empty if nothing failed.
func TestReport(t *testing.T) {
	code, how := decodeStatus(syscall.WaitStatus(9))
	r := &Report{
		First: &Exit{Rank: 2, Code: code, How: how, After: 1234567 * time.Microsecond, Lines: []string{"a", "b"}}, Attempts: 2,
		Ranks: []Exit{{Rank: 1, How: "ended well"}, {Rank: 2}, {Rank: 3, How: "exit code 1", Doing: hadJoined}},
		Found: []string{"Rank 1 is behind."}, Dumps: "d/*",
	}
	want := `tutti: rank 2 failed first: killed by SIGKILL after 1.235s
    a
    b
tutti: rank 1 ended well
tutti: rank 3 had joined; exit code 1
tutti: Rank 1 is behind.
tutti: to see which rank the others waited for: tutti inspect d/*
tutti: that was attempt 2
`
	if got := r.String(); got != want || code != 137 {
		t.Errorf("%d, %s", code, got)
	}
	if text := new(Report).String(); text != "" {
		t.Error(text)
	}
}

// TestListen opens the store at an address of another host, and at a name that does not
// resolve: other hosts may still reach this host there. Any other error, and a store
// without a certificate, are refused.
func TestListen(t *testing.T) {
	cert, key, err := jobtls.DeriveCertificate("a secret of some length")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	config := store.Config{Secret: []byte("a secret of some length"), Cert: cert, Key: key, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	for _, addr := range []string{"192.0.2.1:0", "no-such-host.invalid:0"} {
		log.Reset()
		s, err := listen(t.Context(), addr, config)
		if err != nil {
			t.Fatal(err)
		}
		c, err := store.Dial(t.Context(), withPort("127.0.0.1:0", s.Addr()), config)
		if err != nil {
			t.Fatal(err)
		}
		taken := withPort("127.0.0.1:0", s.Addr())
		if again, err := listen(t.Context(), taken, config); err == nil {
			t.Error("two listen on one port")
			again.Close()
		}
		if !strings.Contains(log.String(), "it listens on all interfaces") || !strings.Contains(log.String(), addr) {
			t.Errorf("nothing is said of it: %s", &log)
		}
		if err := errors.Join(c.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	}
	config.Cert, config.Key = nil, nil
	if s, err := listen(t.Context(), "192.0.2.1:0", config); err == nil {
		t.Error("it listens without a certificate")
		s.Close()
	}
}

// TestReplacementDelay checks that the first replacement starts at once, that the delay
// then doubles, and that a process that ran for stableTime resets it.
func TestReplacementDelay(t *testing.T) {
	for n, want := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second} {
		if got := replacementDelay(n, 0); got != want {
			t.Errorf("%d: %v, want %v", n, got, want)
		}
	}
	if got := replacementDelay(100, 0); got != maxReplacementDelay {
		t.Error(got)
	}
	if got := replacementDelay(100, stableTime); got != 0 {
		t.Error(got)
	}
}

func TestReportLosses(t *testing.T) {
	r := &Report{Lost: []Loss{
		{Exit: Exit{Rank: 1, How: "killed by SIGKILL", After: time.Second}, By: 1, ByAfter: 2 * time.Second, LetIn: "rank 2 of 3"},
		{Exit: Exit{Rank: 1, Replacement: 1, How: "exit code 3", After: 3 * time.Second}, By: 2, ByAfter: 4 * time.Second},
		{Exit: Exit{Rank: 0, How: "exit code 4", After: 5 * time.Second}},
	}}
	want := `tutti: rank 1 was lost after 1s: killed by SIGKILL; replacement 1 started after 2s and was admitted as rank 2 of 3
tutti: replacement 1 of rank 1 was lost after 3s: exit code 3; replacement 2 started after 4s and was not admitted
tutti: rank 0 was lost after 5s: exit code 4; it was not replaced
`
	if got := r.String(); got != want {
		t.Error(got)
	}
}

// TestApplyDecision excludes a running rank that is not in the decision. Processes that
// wait for admission or have exited are not affected.
func TestApplyDecision(t *testing.T) {
	waits, ended := &rank{number: 2, local: 2, replacement: 1}, &rank{number: 2, local: 2, exit: &Exit{Code: 137}, loss: new(Loss)}
	w := &attempt{
		cfg: &Config{Grace: time.Hour}, h: &host{all: store.NewMemory(store.Limits{})},
		ranks: []*rank{{number: 0}, {number: 1, local: 1}, ended, waits}, elastic: elasticState{timer: time.NewTimer(time.Hour)},
	}
	w.applyDecision([]string{"0"})
	for i, want := range []bool{true, false, true, false} {
		if r := w.ranks[i]; w.isMember(r) != want {
			t.Errorf("%s is a member: %v", r.name(), !want)
		}
	}
	if len(w.elastic.excluded) != 1 || w.elastic.excluded[0].rank != w.ranks[1] {
		t.Errorf("%+v", w.elastic.excluded)
	}
	waits.admittedAs = "rank 1 of 2"
	w.applyDecision([]string{"0", "2.1"})
	w.applyDecision([]string{"0"})
	if len(w.elastic.excluded) != 2 || w.isMember(waits) {
		t.Errorf("%+v", w.elastic.excluded)
	}
}

// TestFirstLoss: rank 1 was lost first, but its replacement became a member. Rank 2's
// did not.
func TestFirstLoss(t *testing.T) {
	one := &rank{number: 1, local: 1, loss: new(Loss)}
	two := &rank{number: 2, local: 2, loss: new(Loss)}
	again := &rank{number: 1, local: 1, replacement: 1, admittedAs: "rank 2 of 3", loss: new(Loss)}
	w := &attempt{ranks: []*rank{{}, one, two, again}, elastic: elasticState{losses: []*rank{one, two, again}}}
	if r := w.firstLoss(); r != two {
		t.Errorf("it is %s", r.name())
	}
	w.ranks = append(w.ranks, &rank{number: 2, local: 2, replacement: 1, admittedAs: "rank 2 of 3"})
	if r := w.firstLoss(); r != again {
		t.Errorf("it is %s", r.name())
	}
}

// TestDecodeExit refuses values that no process can have.
func TestDecodeExit(t *testing.T) {
	if e, err := decodeExit([]byte(`{"rank":3,"node":1,"code":137,"how":"killed"}`)); err != nil || e.Rank != 3 || e.Code != 137 {
		t.Error(e, err)
	}
	for _, text := range []string{`{"rank":3,"code":256}`, `{"rank":3,"code":-1}`, `{"rank":-2}`, `{"replacement":-1}`, `{`, `[]`} {
		if e, err := decodeExit([]byte(text)); err == nil {
			t.Errorf("%s: %+v", text, e)
		}
	}
}

// TestCountRanks refuses a host with an impossible number of ranks.
func TestCountRanks(t *testing.T) {
	for _, says := range []string{"-1", "0", "9000000000000000000", "many", ""} {
		own := store.NewMemory(store.Limits{})
		if err := own.Set(t.Context(), "ranks/1", []byte(says)); err != nil {
			t.Fatal(err)
		}
		h := &host{cfg: &Config{Nodes: 2, Ranks: 1}, own: own}
		if err := h.countRanks(t.Context()); err == nil || !strings.Contains(err.Error(), "node 1 says") {
			t.Errorf("%q: %v, %d ranks", says, err, h.size)
		}
	}
}
