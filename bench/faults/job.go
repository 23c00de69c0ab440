package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/internal/netns"
	"github.com/tutti-go/tutti/store"
)

// patience is the time after which any step counts as hung.
const patience = time.Minute

// A job is the processes of one trial, and the store through which they join.
type job struct {
	ranks  []*rank
	server *store.Server  // if all ranks are on this host
	net    *netns.Network // otherwise: the network between the hosts
	hosts  []int          // by rank; with net only
	keeper *rank          // the process with the store, on the last host; with net only
}

// A rank is a process of a job.
type rank struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan string // its standard output; closed when that ends
	errors lockedText  // its standard error
	once   sync.Once   // guards the only call of cmd.Wait
	waited error       // result of cmd.Wait; valid after once
}

// A lockedText collects the output of processes. It may be read while they write.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// An end is how a rank's work ended, as the rank prints it.
type end struct {
	At    int64  `json:"at"`              // wall clock, in nanoseconds
	Began int64  `json:"began,omitempty"` // start of the call that ended so; only in some trials
	Kind  string `json:"kind"`
	Text  string `json:"text"`
	Lost  []int  `json:"lost"`
	// Awaited are the ranks that the failed operation waited for, and those from which it received
	// nothing. A timeout names them. It is empty if Join failed.
	Awaited []int  `json:"awaited,omitempty"`
	Wrong   string `json:"wrong,omitempty"` // describes a wrong result
	Did     int    `json:"did"`             // operations before it
	Size    int    `json:"size,omitempty"`  // ranks of the Comm with which it continues
}

// A spec is the job to start.
type spec struct {
	ranks     int
	transport string
	state     string
	env       []string
	// hosts is the host of each rank, if not all ranks are on this host. The store
	// has a host of its own, after the last.
	hosts []int
	// names are the host names that the ranks report, if all ranks are on this host
	// but must not know it.
	names []string
}

// networkCount counts the networks of this process.
var networkCount atomic.Int32

const jobSecret = "a secret of this drill"

// start starts the store and the ranks of a job, and does not wait until they have joined. After an
// error no process of the job is left.
func start(o spec) (*job, error) {
	j := &job{hosts: o.hosts}
	env := append(os.Environ(), "TUTTI_SECRET="+jobSecret, stateName+"="+o.state, "FAULTS_TRANSPORT="+o.transport)
	env = append(env, o.env...)
	var err error
	if o.hosts == nil {
		env, err = j.serve(env)
	} else {
		env, err = j.serveFar(env)
	}
	for r := 0; r < o.ranks && err == nil; r++ {
		var k *rank
		own := append(env[:len(env):len(env)], fmt.Sprint("TUTTI_RANK=", r), fmt.Sprint("TUTTI_SIZE=", o.ranks))
		host := -1
		if o.hosts != nil {
			host = o.hosts[r]
			own = append(own, fmt.Sprint("FAULTS_HOST=", host))
		}
		if o.names != nil {
			own = append(own, "FAULTS_HOST="+o.names[r])
		}
		if k, err = j.launch(host, own); err == nil {
			j.ranks = append(j.ranks, k)
		}
	}
	if err != nil {
		j.end()
		return nil, err
	}
	return j, nil
}

// launch starts a process on a host; -1 is this host. A goroutine reads its standard output into
// lines until the output ends. That goroutine blocks while 64 lines are unread.
func (j *job) launch(host int, env []string) (*rank, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	k := &rank{lines: make(chan string, 64)}
	if host < 0 {
		k.cmd = exec.Command(self, "-test.run=^$")
	} else {
		k.cmd = j.net.Command(context.Background(), host, self, "-test.run=^$")
	}
	k.cmd.Env = env
	k.cmd.Stderr = &k.errors
	out, err := k.cmd.StdoutPipe()
	if err == nil {
		k.in, err = k.cmd.StdinPipe()
	}
	if err == nil {
		err = k.cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(k.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			k.lines <- s.Text()
		}
	}()
	return k, nil
}

// await waits for a line that begins with a word, and returns the rest. Other lines are dropped. It
// returns an error if the rank reports the end of its work instead, and an error with the rank's standard
// error if the output ends or no such line comes within patience.
func (k *rank) await(word string) (string, error) {
	late := time.After(patience)
	for {
		select {
		case line, ok := <-k.lines:
			if !ok {
				return "", fmt.Errorf("it ended without %q: %s", word, &k.errors)
			}
			if rest, found := strings.CutPrefix(line, word); found {
				return strings.TrimSpace(rest), nil
			}
			if strings.HasPrefix(line, "ended ") {
				return "", fmt.Errorf("it has failed before %q: %s", word, line)
			}
		case <-late:
			return "", fmt.Errorf("no %q for %v: it hangs: %s", word, patience, &k.errors)
		}
	}
}

// awaitAll waits for a line from some ranks.
func (j *job) awaitAll(word string, ranks []int) error {
	for _, r := range ranks {
		if _, err := j.ranks[r].await(word); err != nil {
			return fmt.Errorf("rank %d: %w", r, err)
		}
	}
	return nil
}

// awaitEnds waits until each of some ranks has printed how its work ended, for each at most patience. It
// returns nil and an error if a rank exits or hangs before that.
func (j *job) awaitEnds(ranks []int) (map[int]end, error) {
	m := make(map[int]end)
	for _, r := range ranks {
		text, err := j.ranks[r].await("ended ")
		var e end
		if err == nil {
			err = json.Unmarshal([]byte(text), &e)
		}
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
		m[r] = e
	}
	return m, nil
}

// send sends a line to a rank. It has no effect on a rank that has exited.
func (k *rank) send(line string) { _, _ = io.WriteString(k.in, line+"\n") }

// wait waits until the process exits.
func (k *rank) wait() error {
	k.once.Do(func() { k.waited = k.cmd.Wait() })
	return k.waited
}

// others returns all ranks but one.
func (j *job) others(not int) (list []int) {
	for r := range j.ranks {
		if r != not {
			list = append(list, r)
		}
	}
	return list
}

// end kills the remaining processes of the job, waits until they have exited, and then closes the
// store and the network.
func (j *job) end() {
	all := j.ranks
	if j.keeper != nil {
		all = append(all[:len(all):len(all)], j.keeper)
	}
	for _, k := range all {
		_ = k.in.Close()
		_ = k.cmd.Process.Kill()
		_ = k.wait()
	}
	if j.server != nil {
		_ = j.server.Close()
	}
	if j.net != nil {
		_ = j.net.Close()
	}
}

// lastEnd returns the time from since to the last end.
func lastEnd(ends map[int]end, since time.Time) time.Duration {
	var t time.Duration
	for _, e := range ends {
		t = max(t, time.Unix(0, e.At).Sub(since))
	}
	return t
}

// namesLost reports whether the error says that a rank is lost.
func (e *end) namesLost(rank int) bool { return slices.Contains(e.Lost, rank) }

// namesAwaited reports whether the error says that the failed operation waited for a rank.
func (e *end) namesAwaited(rank int) bool { return slices.Contains(e.Awaited, rank) }

// mentions reports whether the text of the error has the number of a rank, as in "rank 2" or "ranks 0
// and 2". It is for errors without further data, such as those of Join.
func (e *end) mentions(rank int) bool {
	return regexp.MustCompile(fmt.Sprintf(`\branks? [0-9, and]*\b%d\b`, rank)).MatchString(e.Text)
}
