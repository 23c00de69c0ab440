package job

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/proctest"
	"github.com/tutti-go/tutti/internal/race"
)

// usage is the resources of a process as reported by the kernel and the runtime.
type usage struct {
	Heap       uint64 // bytes in use
	RSS        int    // bytes of private memory
	Shared     int    // bytes of shared memory
	Goroutines int
	Files      int
	Mappings   int // of memory files
}

// measure waits until goroutines that are about to end have ended, and measures.
func measure() (usage, error) {
	for before := -1; before != runtime.NumGoroutine(); {
		before = runtime.NumGoroutine()
		time.Sleep(5 * time.Millisecond)
	}
	// Twice, so that pooled memory is released.
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := usage{Heap: m.HeapAlloc, Goroutines: runtime.NumGoroutine(), Files: proctest.OpenFiles()}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return u, err
	}
	u.Mappings = strings.Count(string(maps), "/memfd:")
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kib, _ := strconv.Atoi(fields[1])
		switch fields[0] {
		case "RssAnon:":
			u.RSS = kib << 10
		case "RssShmem:":
			u.Shared = kib << 10
		}
	}
	return u, nil
}

// grown describes which resources have grown from before to after. Memory that has grown by less
// than slack is ignored as the runtime's.
func grown(before, after usage, slack int) error {
	var more []string
	add := func(name string, b, a, slack int) {
		if a > b+slack {
			more = append(more, fmt.Sprintf("%s: %d, was %d", name, a, b))
		}
	}
	add("bytes on the heap", int(before.Heap), int(after.Heap), slack)
	// The race detector remembers goroutines that have ended.
	if !race.Enabled {
		add("bytes resident", before.RSS, after.RSS, 8*slack)
	}
	add("bytes resident and shared", before.Shared, after.Shared, slack)
	add("goroutines", before.Goroutines, after.Goroutines, 0)
	add("descriptors", before.Files, after.Files, 0)
	add("mappings of memory files", before.Mappings, after.Mappings, 0)
	if more == nil {
		return nil
	}
	return fmt.Errorf("more than before: %s", strings.Join(more, "; "))
}

// linked measures when the links of the control channel are made: their number has not changed for
// longer than it takes to make them.
func linked(size int) (usage, error) {
	last, err := measure()
	for since := time.Now(); err == nil && time.Since(since) < time.Second+time.Duration(size)*10*time.Millisecond; time.Sleep(10 * time.Millisecond) {
		var now usage
		if now, err = measure(); now.Files != last.Files {
			last, since = now, time.Now()
		}
	}
	if err != nil {
		return last, err
	}
	return measure()
}

// settle measures until nothing has grown, but for less than an operation's timeout, because the
// other ranks wait. It returns the last measurement and what has grown.
func settle(before usage, slack int) (usage, error) {
	for end := time.Now().Add(45 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		after, err := measure()
		if err == nil {
			err = grown(before, after, slack)
		}
		if err == nil || time.Now().After(end) {
			return after, err
		}
	}
}

// inodes are the resources that processes could leave behind, by inode: descriptors and mappings.
type inodes struct {
	segments map[string]bool // memory files
	sockets  map[string]bool
	files    []string // files with a name
}

// signal sends a signal to all ranks.
func (w *world) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	for _, cmd := range w.cmds {
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
}

// stop stops all ranks.
func (w *world) stop(t *testing.T) {
	t.Helper()
	for _, cmd := range w.cmds {
		proctest.Stop(t, cmd.Process.Pid)
	}
}

// held returns the resources of all ranks.
func (w *world) held(t *testing.T) inodes {
	t.Helper()
	h := inodes{segments: make(map[string]bool), sockets: make(map[string]bool)}
	for _, cmd := range w.cmds {
		h.add(t, cmd.Process.Pid)
	}
	return h
}

// add adds the segments, sockets and files that a process uses. The process must not change them meanwhile:
// tests stop it first or let it wait.
func (h *inodes) add(t *testing.T, pid int) {
	t.Helper()
	for _, inode := range segmentsOf(pid) {
		h.segments[inode] = true
	}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(links) == 0 {
		t.Fatalf("process %d has no descriptors: %v", pid, err)
	}
	for _, l := range links {
		to, err := os.Readlink(l)
		inode, socket := strings.CutPrefix(to, "socket:[")
		switch {
		case err != nil:
		case socket:
			h.sockets[strings.TrimSuffix(inode, "]")] = true
		case strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "/memfd:") && to != "/dev/null" && !inherited(to):
			h.files = append(h.files, to)
		}
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if _, path, named := strings.Cut(line, " /dev/shm/"); named {
			h.files = append(h.files, "/dev/shm/"+path)
		}
	}
}

// inherited reports whether a rank has an open file from its runtime or from the test process.
func inherited(path string) bool {
	if strings.HasPrefix(path, "/sys/") || strings.HasPrefix(path, "/proc/") {
		return true
	}
	own, _ := filepath.Glob("/proc/self/fd/*")
	return slices.ContainsFunc(own, func(l string) bool {
		to, _ := os.Readlink(l)
		return to == path
	})
}

// segmentsOf returns the inodes of the memory files that a process has mapped.
func segmentsOf(pid int) (list []string) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil // it has exited
	}
	for line := range strings.Lines(string(maps)) {
		// address perms offset dev inode path
		if f := strings.Fields(line); len(f) > 5 && strings.HasPrefix(f[5], "/memfd:tutti") {
			list = append(list, f[4])
		}
	}
	return list
}

// left lists the segments and sockets of h that still exist, after their processes have exited.
func (h *inodes) left() (list []string) {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		pid, _ := strconv.Atoi(filepath.Base(p))
		for _, inode := range segmentsOf(pid) {
			if h.segments[inode] {
				list = append(list, fmt.Sprintf("process %d has mapped segment %s", pid, inode))
			}
		}
	}
	// the index of the field with the inode
	for table, at := range map[string]int{
		"/proc/net/unix": 6, "/proc/net/tcp": 9, "/proc/net/tcp6": 9,
	} {
		text, _ := os.ReadFile(table)
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > at && h.sockets[f[at]] {
				list = append(list, table+": "+strings.TrimSpace(line))
			}
		}
	}
	return list
}

// listening returns the TCP addresses at which a process listens, as other processes of this host
// reach them.
func listening(t *testing.T, pid int) (addrs []string) {
	t.Helper()
	h := inodes{segments: make(map[string]bool), sockets: make(map[string]bool)}
	h.add(t, pid)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table)
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == "0A" && h.sockets[f[9]] {
				_, hex, _ := strings.Cut(f[1], ":")
				port, err := strconv.ParseUint(hex, 16, 16)
				if err != nil {
					t.Fatal(err)
				}
				addrs = append(addrs, fmt.Sprint("127.0.0.1:", port))
			}
		}
	}
	return addrs
}
