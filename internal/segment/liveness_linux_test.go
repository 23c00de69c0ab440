package segment

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/internal/proctest"
)

const holderEnv = "TUTTI_TEST_LIFE"

// A holder is the output of the process of TestLiveness.
type holder struct {
	FD   int
	Sign *ProcessIdentity
	Why  string // why it has no Liveness
}

// TestLivenessHolder is that process: it holds a Liveness until it is killed or its
// standard input ends.
func TestLivenessHolder(t *testing.T) {
	if os.Getenv(holderEnv) == "" {
		t.Skip("this is the process of TestLiveness")
	}
	s, err := New("tutti-test", 2, LivenessBytes, 0)
	if err != nil {
		t.Fatal(err)
	}
	h := holder{FD: s.FD(), Sign: NewProcessIdentity()}
	if _, err := NewLiveness(s.Part(0)); err != nil {
		h.Why = err.Error()
	}
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(string(text))
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// TestLiveness reads the memory of a process with a Liveness, and kills the process.
// Afterwards the memory of another process with its PID must not be read as its own.
func TestLiveness(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), proctest.Self(t), "-test.run=^TestLivenessHolder$")
	cmd.Env = append(os.Environ(), holderEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	defer kill()
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var h holder
	if err := json.Unmarshal(line, &h); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	if h.Why != "" {
		t.Skip("this system does not note the end of a process:", h.Why)
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", cmd.Process.Pid, h.FD), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("this system does not let a process see another's files:", err)
	}
	s, err := Map(fd, 2, LivenessBytes, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	h.Sign.UseLiveness(s.Part(0))
	if !h.Sign.liveness.held() {
		t.Fatal("a process that lives does not seem to")
	}
	seen := make([]byte, nonceBytes)
	peek := func() error { return ReadProcess(h.Sign, unsafe.Pointer(&seen[0]), h.Sign.Addr, len(seen)) }
	switch err := peek(); {
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS):
		t.Skip("this system does not let a process read memory so:", err)
	case err != nil || string(seen) != string(h.Sign.Nonce):
		t.Fatalf("it read %x, not %x: %v", seen, h.Sign.Nonce, err)
	}
	if err := ReadProcess(h.Sign, unsafe.Pointer(&seen[0]), 8, len(seen)); !errors.Is(err, unix.EFAULT) {
		t.Errorf("no memory there: %v", err)
	}
	kill()
	if h.Sign.liveness.held() {
		t.Error("a process that was killed seems to live")
	}
	// Another process with the same PID: this one.
	h.Sign.PID = os.Getpid()
	if err := peek(); err == nil {
		t.Error("what another process has was taken for that of one that has ended")
	}
	if !h.Sign.liveness.ownerDied() {
		t.Error("it does not show that it was killed")
	}
}

// TestLivenessClose closes a Liveness. The process then counts neither as running
// nor as ended, and its memory can still be read.
func TestLivenessClose(t *testing.T) {
	s, err := New("tutti-test", 2, LivenessBytes, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l, err := NewLiveness(s.Part(0))
	if err != nil {
		t.Skip("this system does not note the end of a process:", err)
	}
	self := NewProcessIdentity()
	self.UseLiveness(s.Part(0))
	if !self.liveness.held() {
		t.Error("it does not show it")
	}
	l.Close()
	if self.liveness.held() {
		t.Error("it still shows it")
	}
	var word uint64
	switch err := ReadProcess(self, unsafe.Pointer(&word), self.Addr, 8); {
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS):
	case err != nil:
		t.Errorf("it is not known by its sign any more: %v", err)
	}
	if self.liveness.ownerDied() {
		t.Error("it seems to have ended")
	}
}
