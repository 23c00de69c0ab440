package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/internal/bench"
	"github.com/tutti-go/tutti/internal/doctor"
	"github.com/tutti-go/tutti/internal/proctest"
	"github.com/tutti-go/tutti/internal/race"
)

// confine restricts this process as TUTTI_TEST_CONFINE says, and then executes tutti in its place.
// It returns only with an error.
func confine() error {
	runtime.LockOSThread()
	what, value, _ := strings.Cut(os.Getenv("TUTTI_TEST_CONFINE"), "=")
	n, _ := strconv.Atoi(value)
	var err error
	switch what {
	case "files":
		err = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(n), Max: uint64(n)})
	case "processes":
		if os.Getuid() != 0 {
			return errors.New("who knows how many processes this user has already")
		}
		err = unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: uint64(n), Max: uint64(n)})
		if err == nil { // root is exempt from that limit
			err = becomeNobody()
		}
	case "address":
		err = unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: uint64(n), Max: uint64(n)})
	case "refused":
		err = forbid(unix.SYS_MEMFD_CREATE, -1, 0, 0x00050000|uint32(unix.EPERM))
	case "killed":
		err = forbid(unix.SYS_MEMFD_CREATE, -1, 0, 0x80000000)
	case "passing":
		// A seccomp filter cannot see the content of a message. Messages that carry
		// descriptors have no flags here, and network messages have.
		err = forbid(unix.SYS_SENDMSG, 2, 0, 0x00050000|uint32(unix.EPERM))
	case "connecting":
		// A filter can tell these sockets from others only by the length of the
		// address.
		err = forbid(unix.SYS_CONNECT, 2, 2+uint32(len("@tutti-")+24), 0x00050000|uint32(unix.EPERM))
	case "unix":
		err = forbid(unix.SYS_SOCKET, 0, unix.AF_UNIX, 0x00050000|uint32(unix.EAFNOSUPPORT))
	case "group":
		err = os.WriteFile(filepath.Join(value, "cgroup.procs"), []byte("0"), 0o600)
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

// becomeNobody switches from root to a user without other processes.
func becomeNobody() error {
	id := 1<<20 + os.Getpid()
	return errors.Join(unix.Setgroups(nil), unix.Setresgid(id, id, id), unix.Setresuid(id, id, id))
}

// forbid changes the effect of a system call from now on: always, or, if arg is not
// negative, when that argument equals value.
func forbid(call uint32, arg int, value, action uint32) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // number of the system call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16 + 8*uint32(max(arg, 0))},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: action},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fff0000},
	}
	if arg < 0 {
		filter[3] = unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA}
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, 2, uintptr(unsafe.Pointer(&prog)), 0, 0)
}

// loopbackUp enables the loopback interface of a new network namespace.
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

// runConfined runs tutti with a restriction, and waits for it. It skips the test if the restriction
// is not permitted here.
func runConfined(t *testing.T, what string, args ...string) result {
	t.Helper()
	cmd := commandOf(t, []string{"TUTTI_TEST_CONFINE=" + what, "TUTTI_TEST_ACT=confined"}, args...)
	switch {
	case what == "network" || what == "loopback":
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	case strings.HasPrefix(what, "processes"):
		cmd.Path = copyForAllUsers(t, cmd.Path)
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
	return result{out.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// copyForAllUsers copies a program to a place where every user can execute it.
func copyForAllUsers(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path = filepath.Join(dir, "tutti")
	if err := os.WriteFile(path, text, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// memoryCgroup creates a cgroup with a memory limit and returns its folder, which the test's
// cleanup removes. It skips the test where this is not permitted.
func memoryCgroup(t *testing.T, bytes int) string {
	t.Helper()
	for root, limit := range map[string]string{"/sys/fs/cgroup/memory": "memory.limit_in_bytes", "/sys/fs/cgroup": "memory.max"} {
		dir := filepath.Join(root, fmt.Sprintf("tutti-test-%d", os.Getpid()))
		// Where cgroup v1 is mounted, the v2 directory does not exist.
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil || os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		if f, err := os.OpenFile(filepath.Join(dir, limit), os.O_WRONLY, 0); err == nil {
			_, err := fmt.Fprint(f, bytes)
			if f.Close() == nil && err == nil {
				return dir
			}
		}
	}
	t.Skip("a test cannot make control groups here")
	return ""
}

func TestDoctorSmallCgroup(t *testing.T) {
	if race.Enabled {
		t.Skip("a raced program needs more memory")
	}
	areas, _ := readLines(t, runConfined(t, "group="+memoryCgroup(t, 200<<20), "doctor", "--json"))
	checkLine(t, areas, "memory", doctor.Warn, "200 MiB free (the control group's limit)")
	checkLine(t, areas, "engine tcp", doctor.OK, "is right")
}

// TestDoctorConfined runs tutti doctor under one restriction at a time. It must report the
// restriction, and which engines work, are not available, or fail.
func TestDoctorConfined(t *testing.T) {
	if race.Enabled {
		t.Skip("a raced program needs more than these machines have")
	}
	for _, c := range []struct {
		take, area, level, words string
		works, lacks, fails      []string // engines
	}{
		{"files=100", "limits", doctor.Fail, "100 open files", nil, nil, nil},
		{"files=600", "limits", doctor.Warn, "ulimit -n 4096", []string{"tcp", "shm"}, nil, nil},
		{"processes=40", "limits", doctor.Fail, "ulimit -u 4096", nil, nil, nil},
		{"processes=1000", "limits", doctor.Warn, "1000 processes", nil, nil, nil},
		{"address=2500000000", "limits", doctor.Fail, "ulimit -v unlimited", nil, nil, nil},
		{"address=8000000000", "limits", doctor.Warn, "address space", []string{"tcp", "shm"}, nil, nil},
		{"refused", "sharing", doctor.Warn, "memfd_create", []string{"local", "tcp", "auto"}, []string{"shm", "hier"}, nil},
		{"killed", "sharing", doctor.Fail, "share memory failed", []string{"local", "tcp"}, nil, []string{"shm", "auto"}},
		{"passing", "sharing", doctor.Warn, "SCM_RIGHTS", []string{"local", "tcp", "auto"}, []string{"shm", "hier"}, nil},
		{"unix", "sharing", doctor.Warn, "unix sockets", []string{"local", "tcp", "auto"}, []string{"shm", "hier"}, nil},
		{"loopback", "network", doctor.Warn, "only the loopback", []string{"local", "tcp", "shm"}, nil, nil},
		{"network", "network", doctor.Fail, "even ranks of one host", []string{"local"}, nil, []string{"tcp"}},
	} {
		t.Run(c.take, func(t *testing.T) {
			areas, _ := readLines(t, runConfined(t, c.take, "doctor", "--json"))
			checkLine(t, areas, c.area, c.level, c.words)
			for _, e := range c.works {
				checkLine(t, areas, "engine "+e, doctor.OK, "is right")
			}
			for _, e := range c.lacks {
				checkLine(t, areas, "engine "+e, doctor.Warn, "not available")
			}
			for _, e := range c.fails {
				checkLine(t, areas, "engine "+e, doctor.Fail, "failed")
			}
		})
	}
}

// TestJoinWithoutSharedMemory forbids shared memory to all ranks, which then use TCP,
// and to one of three, which then counts as a host of its own. The ranks are informed.
func TestJoinWithoutSharedMemory(t *testing.T) {
	point := append([]string{"--op", "allreduce", "-b", "1K", "-e", "1K", "--json"}, fewIters...)
	for take, words := range map[string]string{"refused": "memfd_create", "passing": "passing memory", "connecting": "seem to be on this host", "unix": "address family"} {
		t.Run(take, func(t *testing.T) {
			got := runConfined(t, take, append([]string{"bench", "-n", "3"}, point...)...)
			list := results(t, got.out)
			if got.code != 0 || len(list) != 1 || list[0].Engine != bench.TCP || list[0].Wrong != 0 {
				t.Errorf("code %d, %+v\n%s", got.code, list, got.err)
			}
			if !strings.Contains(got.err, words) || !strings.Contains(got.err, "TCP") {
				t.Errorf("it does not say so: %s", got.err)
			}
			isRank1 := []string{"TUTTI_TEST_CONFINE=" + take, "TUTTI_TEST_ACT=confined one"}
			got = tuttiWith(t, isRank1, append([]string{"run", "-n", "3", "--", proctest.Self(t), "bench"}, point...)...)
			list = results(t, strings.ReplaceAll(got.out, "[0] ", ""))
			if got.code != 0 || len(list) != 1 || list[0].Engine != bench.Hier || list[0].Wrong != 0 {
				t.Errorf("one of three: code %d, %+v\n%s", got.code, list, got.err)
			}
		})
	}
}
