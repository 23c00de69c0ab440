package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/hier"
	"github.com/tutti-go/tutti/internal/engine/network"
	"github.com/tutti-go/tutti/internal/engine/shm"
	"github.com/tutti-go/tutti/internal/kernel"
	"golang.org/x/sys/unix"
)

// pairs checks which path each two ranks use to exchange data: their engine, the segments they map, and the
// bytes that the kernel has sent for them. All ranks run it; each pair makes a group of its own.
func pairs(ctx context.Context, e engine.Engine) error {
	hosts := e.SameHost()
	different := len(slices.Compact(slices.Sorted(slices.Values(hosts))))
	want := "both"
	switch different {
	case 1:
		want = "shared memory"
	case len(hosts):
		want = "network"
	}
	if got := wayOf(e); got != want {
		return fmt.Errorf("the group of all uses %s, want %s", got, want)
	}
	for a := range hosts {
		for b := range a {
			if e.Rank() != a && e.Rank() != b {
				continue
			}
			sub, err := e.Sub(ctx, uint64(1_000_000+1000*a+b), []int{a, b})
			if err != nil {
				return err
			}
			if err := errors.Join(pair(ctx, sub, hosts[a] == hosts[b]), sub.Close()); err != nil {
				return fmt.Errorf("ranks %d and %d: %w", b, a, err)
			}
		}
	}
	return nil
}

func wayOf(e engine.Engine) string {
	if n, ok := e.(*networked); ok {
		e = n.Engine
	}
	switch e.(type) {
	case *shm.Engine:
		return "shared memory"
	case *network.Engine:
		return "network"
	case *hier.Engine:
		return "both"
	}
	return fmt.Sprintf("%T", e)
}

// pair is one side of an exchange of one MiB. It returns an error unless the ranks use shared memory if near
// is set, and TCP otherwise, judged by the engine, the bytes sent and the mapped segments.
func pair(ctx context.Context, e engine.Engine, near bool) error {
	const elems = 1 << 18
	x := make([]float32, elems)
	m := engine.Mem{Ptr: unsafe.Pointer(&x[0]), N: elems, Type: kernel.Float32}
	before, err := sentOverTCP()
	if err != nil {
		return err
	}
	if err := e.Run(ctx, 1, []engine.Call{{Verb: engine.AllReduce, ReduceOp: engine.Sum, Dst: m, Src: m}}); err != nil {
		return err
	}
	after, err := sentOverTCP()
	if err != nil {
		return err
	}
	// A frame's head is small compared with this. Half of the data has to be sent.
	way, sent, boards := wayOf(e), uint64(0), 0
	for inode, bytes := range after {
		sent += bytes - before[inode]
	}
	if maps, err := os.ReadFile("/proc/self/maps"); err == nil {
		for line := range strings.Lines(string(maps)) {
			if strings.Contains(line, "/memfd:") && strings.Contains(line, "tutti") {
				boards++
			}
		}
	}
	switch {
	case near && (way != "shared memory" || sent > elems/2 || boards < 2):
	case !near && (way != "network" || sent < elems*2):
	default:
		return nil
	}
	return fmt.Errorf("near each other: %v; they use %s, sent %d bytes over TCP, %d boards are mapped", near, way, sent, boards)
}

// sentOverTCP returns the bytes sent on each connection of this process, by inode.
func sentOverTCP() (map[string]uint64, error) {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	sent := make(map[string]uint64)
	for _, f := range list {
		fd, err := strconv.Atoi(f.Name())
		if err != nil {
			return nil, err
		}
		inode, gone := os.Readlink("/proc/self/fd/" + f.Name())
		if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil && gone == nil {
			sent[inode] = info.Bytes_sent
		}
	}
	if len(sent) == 0 {
		return nil, errors.New("the kernel tells nothing of this process's connections")
	}
	return sent, nil
}
