package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// patience is how long anything may take before it counts as a hang.
const patience = time.Minute

// A job is the processes of one trial.
type job struct {
	ranks []*rank
}

// A rank is one of them.
type rank struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan string // what it prints
	errors lockedText  // and what it says of errors
	once   sync.Once
	waited error
}

type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
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

// An end is how a rank's work ended, as it prints it.
type end struct {
	At    int64  `json:"at"` // wall clock, in nanoseconds
	Kind  string `json:"kind"`
	Text  string `json:"text"`
	Lost  []int  `json:"lost"`
	Wrong string `json:"wrong,omitempty"` // a wrong result
	Did   int    `json:"did"`             // operations before it
}

// start starts n ranks in a state.
func start(n int, transport, state string, env ...string) (*job, error) {
	addr, err := freePort()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	j := new(job)
	for r := range n {
		k := &rank{lines: make(chan string, 64)}
		k.cmd = exec.Command(self, "-test.run=^$")
		k.cmd.Env = append(append(os.Environ(), env...), stateName+"="+state, fmt.Sprint("FAULTS_RANK=", r),
			fmt.Sprint("FAULTS_SIZE=", n), "FAULTS_ADDR="+addr, "FAULTS_TRANSPORT="+transport)
		k.cmd.Stderr = &k.errors
		out, err := k.cmd.StdoutPipe()
		if err == nil {
			k.in, err = k.cmd.StdinPipe()
		}
		if err == nil {
			err = k.cmd.Start()
		}
		if err != nil {
			j.end()
			return nil, err
		}
		go func() {
			defer close(k.lines)
			for s := bufio.NewScanner(out); s.Scan(); {
				k.lines <- s.Text()
			}
		}()
		j.ranks = append(j.ranks, k)
	}
	return j, nil
}

// freePort is where rank 0 will listen. Another program may take it first, but
// only by chance.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// await waits for a line that begins with a word, and returns the rest.
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

// ends returns how it ended for some ranks.
func (j *job) ends(ranks []int) (map[int]end, error) {
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

// say says a line to a rank. One that has ended does not hear it.
func (k *rank) say(line string) { _, _ = io.WriteString(k.in, line+"\n") }

// wait waits for the process's end.
func (k *rank) wait() error {
	k.once.Do(func() { k.waited = k.cmd.Wait() })
	return k.waited
}

// others are all ranks but one.
func (j *job) others(not int) (list []int) {
	for r := range j.ranks {
		if r != not {
			list = append(list, r)
		}
	}
	return list
}

// end ends what is left of the job.
func (j *job) end() {
	for _, k := range j.ranks {
		_ = k.in.Close()
		_ = k.cmd.Process.Kill()
		_ = k.wait()
	}
}

// latest is the last end, after a moment.
func latest(ends map[int]end, since time.Time) time.Duration {
	var t time.Duration
	for _, e := range ends {
		t = max(t, time.Unix(0, e.At).Sub(since))
	}
	return t
}

// names reports whether an end names a rank.
func (e *end) names(rank int) bool { return slices.Contains(e.Lost, rank) }
