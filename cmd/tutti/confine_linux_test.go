package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/internal/doctor"
)

// confine takes something from this process, as TUTTI_TEST_CONFINE says, and becomes
// tutti. It is an act of the test's binary.
func confine() error {
	runtime.LockOSThread()
	what, value, _ := strings.Cut(os.Getenv("TUTTI_TEST_CONFINE"), "=")
	n, _ := strconv.Atoi(value)
	var err error
	switch what {
	case "files":
		err = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(n), Max: uint64(n)})
	case "processes":
		err = unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: uint64(n), Max: uint64(n)})
	case "address":
		err = unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: uint64(n), Max: uint64(n)})
	case "refused":
		err = forbid(unix.SYS_MEMFD_CREATE, 0x00050000|uint32(unix.EPERM))
	case "killed":
		err = forbid(unix.SYS_MEMFD_CREATE, 0x80000000)
	case "passing":
		err = forbid(unix.SYS_SENDMSG, 0x00050000|uint32(unix.EPERM))
	case "loopback":
		err = loopbackUp()
	case "network":
	default:
		err = fmt.Errorf("%q", what)
	}
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Setenv("TUTTI_TEST_ACT", "tutti"); err != nil {
		return err
	}
	return syscall.Exec(self, os.Args, os.Environ())
}

// forbid makes a system call do something else from now on.
func forbid(call, action uint32) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: action},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fff0000},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, 2, uintptr(unsafe.Pointer(&prog)), 0, 0)
}

// loopbackUp makes the loopback of a new network namespace usable.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}

// confined runs tutti doctor --json with something taken from it.
func confined(t *testing.T, what string) map[string][]doctor.Line {
	t.Helper()
	cmd := commandOf(t, []string{"TUTTI_TEST_CONFINE=" + what, "TUTTI_TEST_ACT=confined"}, "doctor", "--json")
	if what == "network" || what == "loopback" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	}
	var out, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	if cmd.ProcessState == nil || strings.Contains(stderr.String(), "confine:") {
		t.Skipf("this machine does not let a test do that: %v %s", err, &stderr)
	}
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	areas, _ := readLines(t, told{out.String(), stderr.String(), cmd.ProcessState.ExitCode()})
	return areas
}

func TestDoctorOnStrangeMachines(t *testing.T) {
	if raced {
		t.Skip("a raced program needs more than these machines have")
	}
	for _, c := range []struct {
		take, area, level, words string
		works, fails             []string // engines
	}{
		{"files=100", "limits", doctor.Fail, "100 open files", nil, nil},
		{"files=600", "limits", doctor.Warn, "ulimit -n 4096", []string{"tcp", "shm"}, nil},
		{"processes=1000", "limits", doctor.Warn, "1000 processes", nil, nil},
		{"address=8000000000", "limits", doctor.Warn, "address space", []string{"tcp", "shm"}, nil},
		{"refused", "sharing", doctor.Fail, "memfd_create", []string{"local", "tcp"}, []string{"shm"}},
		{"killed", "sharing", doctor.Fail, "did not live", []string{"local", "tcp"}, []string{"shm"}},
		{"passing", "sharing", doctor.Fail, "SCM_RIGHTS", []string{"local"}, []string{"shm"}},
		{"loopback", "network", doctor.Warn, "only the loopback", []string{"local", "tcp", "shm"}, nil},
		{"network", "network", doctor.Fail, "even ranks of one host", []string{"local"}, []string{"tcp"}},
	} {
		t.Run(c.take, func(t *testing.T) {
			areas := confined(t, c.take)
			expect(t, areas, c.area, c.level, c.words)
			for _, e := range c.works {
				expect(t, areas, "engine "+e, doctor.OK, "is right")
			}
			for _, e := range c.fails {
				expect(t, areas, "engine "+e, doctor.Fail, "failed")
			}
		})
	}
}
