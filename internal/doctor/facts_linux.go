package doctor

import (
	"context"
	"fmt"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/internal/segment"
)

// readLimits reads the resource limits of this process.
func (f *Facts) readLimits() {
	for _, l := range []struct {
		which int
		to    *int
	}{{unix.RLIMIT_NOFILE, &f.Files}, {unix.RLIMIT_NPROC, &f.Processes}, {unix.RLIMIT_MEMLOCK, &f.Locked}, {unix.RLIMIT_AS, &f.Address}} {
		var r unix.Rlimit
		if unix.Getrlimit(l.which, &r) == nil && r.Cur <= math.MaxInt {
			*l.to = int(r.Cur)
		}
	}
}

// readSystem reads the memory of the machine and the limits of the cgroup. Facts that cannot be
// read stay unknown.
func (f *Facts) readSystem() {
	var st unix.Statfs_t
	if unix.Statfs("/dev/shm", &st) == nil {
		f.ShmBytes = int(st.Blocks) * int(st.Bsize)
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "MemAvailable:" {
				n, _ := strconv.Atoi(fields[1])
				f.MemoryFree = n << 10
			}
		}
	}
	f.readCgroup()
}

// readCgroup reads the limits of this process's cgroup and its ancestors. The lowest
// counts.
func (f *Facts) readCgroup() {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return
	}
	lower := func(to *int, n int) {
		if n >= 0 && (*to < 0 || n < *to) {
			*to = n
		}
	}
	cores := func(quota, period float64) {
		if quota > 0 && period > 0 && (f.Quota < 0 || quota/period < f.Quota) {
			f.Quota = quota / period
		}
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		for dir := parts[2]; ; dir = path.Dir(dir) {
			if parts[1] == "" { // cgroup v2
				lower(&f.MemoryLimit, readNumber("/sys/fs/cgroup", dir, "memory.max"))
				var quota, period float64
				if n, _ := fmt.Sscan(readText("/sys/fs/cgroup", dir, "cpu.max"), &quota, &period); n == 2 {
					cores(quota, period)
				}
			}
			if strings.Contains(parts[1], "memory") {
				if n := readNumber("/sys/fs/cgroup/memory", dir, "memory.limit_in_bytes"); n < 1<<60 {
					lower(&f.MemoryLimit, n)
				}
			}
			if strings.Contains(parts[1], "cpu") {
				cores(float64(readNumber("/sys/fs/cgroup/cpu", dir, "cpu.cfs_quota_us")),
					float64(readNumber("/sys/fs/cgroup/cpu", dir, "cpu.cfs_period_us")))
			}
			if dir == "/" || dir == "." {
				break
			}
		}
	}
}

func readText(parts ...string) string {
	text, _ := os.ReadFile(path.Join(parts...))
	return strings.TrimSpace(string(text))
}

func readNumber(parts ...string) int {
	n, err := strconv.Atoi(readText(parts...))
	if err != nil {
		return -1
	}
	return n
}

// ProbeMemory tries the memory operations that ranks of one host use, on this process: it makes a
// segment, passes it to itself over a socket, and reads its own memory by the call that reads
// another process's. If no segment can be made, the other two are not tried. A seccomp
// filter may kill the process, so ProbeMemory should run in a process of its own.
func ProbeMemory() Memory {
	m := Memory{Supported: true}
	s, err := segment.New("tutti doctor", 2, 1<<16, 0)
	if err != nil {
		m.Make = err.Error()
		return m
	}
	defer s.Close()
	*(*byte)(s.Part(0)) = 42
	if err := passSegment(s); err != nil {
		m.Pass = err.Error()
	}
	var dst, src [8]byte
	if err := segment.ReadProcess(segment.NewProcessIdentity(), unsafe.Pointer(&dst), uint64(uintptr(unsafe.Pointer(&src))), len(src)); err != nil {
		m.Read = err.Error()
	}
	return m
}

// passSegment passes a segment to this process over a socket and maps it a second time. A goroutine
// sends it while the caller's goroutine receives it. The context bounds both to 5 seconds.
func passSegment(s *segment.Segment) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	l, err := segment.Listen()
	if err != nil {
		return err
	}
	defer l.Close()
	const name, rank = "doctor", 1
	key := []byte(name)
	l.Serve(key)
	passed := make(chan error, 1)
	go func() { passed <- l.Pass(ctx, name, s, []int{rank}) }()
	fd, err := segment.Fetch(ctx, l.Addr(), key, name, rank)
	if err != nil {
		return err
	}
	got, err := segment.Map(fd, 2, 1<<16, rank)
	if err != nil {
		return err
	}
	defer got.Close()
	if *(*byte)(got.Part(0)) != 42 {
		return fmt.Errorf("a memory file does not contain the bytes written to it")
	}
	return <-passed
}
