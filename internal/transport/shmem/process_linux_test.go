package shmem

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/proctest"
	"github.com/tutti-go/tutti/internal/segment"
	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
	"golang.org/x/sys/unix"
)

// childEnv makes a process of the test binary rank 1 of BenchmarkProcesses. Its value is the
// pattern, the length, the number of rounds and how data above a record is moved: by the
// default choice, read or stream.
const childEnv = "TUTTI_TEST_SHMEM_CHILD"

func TestMain(m *testing.M) {
	if job := os.Getenv(childEnv); job != "" {
		if err := runChild(job); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// extraBytes is the memory of a part behind the lane's: the sleeping word of the ParkingLot and the
// PID.
const extraBytes = 2 * lineBytes

type process struct {
	*Lane
	lot *wait.ParkingLot
}

func (process) Accept(*transport.Message) error { return nil }
func (process) Note(int, *transport.Note)       {}

func newProcess(s *segment.Segment, rank int, way string) process {
	word := func(r, i int) *atomic.Uint64 {
		return (*atomic.Uint64)(unsafe.Add(s.Part(r), Bytes(2)+i*lineBytes))
	}
	word(rank, 1).Store(uint64(os.Getpid()))
	z := defaultSizes(2)
	if way != "default" {
		z.blocks, z.readMin = [numClasses]blocks{}, 0
	}
	opt := Options{
		sizes: &z, Rank: rank, Memory: []unsafe.Pointer{s.Part(0), s.Part(1)},
		ParkingLot: wait.NewPeerParkingLot(false, word(rank, 0), []*atomic.Uint64{word(1-rank, 0)}),
	}
	if way != "stream" {
		opt.ReadProcess = func(r int, dst unsafe.Pointer, addr uint64, n int) error {
			local := unix.Iovec{Base: (*byte)(dst), Len: uint64(n)}
			remote := unix.RemoteIovec{Base: uintptr(addr), Len: n}
			got, _, errno := unix.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(word(r, 1).Load()),
				uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
			if errno != 0 {
				return errno
			}
			if int(got) != n {
				return unix.EFAULT
			}
			return nil
		}
	}
	p := process{New(opt), opt.ParkingLot}
	p.Handle(p)
	return p
}

func runChild(job string) error {
	var pattern string
	var length, rounds int
	var way string
	if _, err := fmt.Sscan(job, &pattern, &length, &rounds, &way); err != nil {
		return err
	}
	s, err := segment.Map(3, 2, Bytes(2)+extraBytes, 1)
	if err != nil {
		return err
	}
	_, err = newProcess(s, 1, way).run(pattern, length, rounds)
	return err
}

// window is the number of messages in flight of the pattern rate.
const window = 64

// run runs a pattern and returns the time per message.
func (p process) run(pattern string, length, rounds int) (time.Duration, error) {
	peer := 1 - p.opt.Rank
	w := wait.NewWaiter(p.lot)
	in := make([]*transport.Message, window)
	out := make([]*transport.Message, window)
	for i := range in {
		in[i] = &transport.Message{Peer: peer, Tag: 1, Body: make([]byte, length)}
		out[i] = &transport.Message{Send: true, Peer: peer, Tag: 1, Body: make([]byte, length)}
	}
	var begin time.Time
	warm := max(rounds/10, 1)
	do := func(list ...*transport.Message) error {
		w.Begin(context.Background(), time.Minute)
		for _, m := range list {
			p.Post(m)
		}
		for _, m := range list {
			if err := p.Finish(w, m); err != nil {
				return err
			}
		}
		w.End()
		return nil
	}
	for i := range warm + rounds {
		if i == warm {
			begin = time.Now()
		}
		var err error
		switch first := p.opt.Rank == 0; pattern {
		case "pingpong":
			if first {
				err = do(out[0])
			}
			if err == nil {
				err = do(in[0])
			}
			if err == nil && !first {
				err = do(out[0])
			}
		case "sendrecv":
			err = do(in[0], out[0])
		case "rate":
			if first {
				if err = do(out...); err == nil {
					err = do(in[0])
				}
			} else if err = do(in...); err == nil {
				err = do(out[0])
			}
		}
		if err != nil {
			return 0, err
		}
	}
	each := time.Since(begin) / time.Duration(rounds)
	switch pattern {
	case "pingpong":
		each /= 2
	case "rate":
		each /= window
	}
	return each, nil
}

// startPair makes this process rank 0 and a child rank 1.
func startPair(tb testing.TB, pattern string, length, rounds int, way string) (process, *exec.Cmd) {
	s, err := segment.New("shmem-test", 2, Bytes(2)+extraBytes, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	cmd := proctest.Again(tb, childEnv+"="+fmt.Sprint(pattern, " ", length, " ", rounds, " ", way))
	file := os.NewFile(uintptr(must(unix.Dup(s.FD()))), "segment")
	cmd.ExtraFiles = []*os.File{file}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	file.Close()
	return newProcess(s, 0, way), cmd
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestProcesses runs each pattern between two processes.
func TestProcesses(t *testing.T) {
	for _, pattern := range []string{"pingpong", "sendrecv", "rate"} {
		for _, length := range []int{0, 16, 4 << 10, 100_000} {
			for _, way := range []string{"default", "read", "stream"} {
				p, cmd := startPair(t, pattern, length, 20, way)
				_, err := p.run(pattern, length, 20)
				text, ended := proctest.Finish(t, cmd)
				if err != nil || ended != nil {
					t.Errorf("%s of %d bytes: %v, %v: %s", pattern, length, err, ended, text)
				}
				p.Close()
			}
		}
	}
}

// BenchmarkProcesses measures messages between two processes.
func BenchmarkProcesses(b *testing.B) {
	for _, pattern := range []string{"pingpong", "sendrecv", "rate"} {
		for _, length := range []int{16, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20} {
			for _, way := range []string{"default", "read", "stream"} {
				if way != "default" && length < 4<<10 {
					continue
				}
				b.Run(pattern+"/"+strconv.Itoa(length)+"/"+way, func(b *testing.B) {
					p, cmd := startPair(b, pattern, length, b.N, way)
					each, err := p.run(pattern, length, b.N)
					text, ended := proctest.Finish(b, cmd)
					if err != nil || ended != nil {
						b.Errorf("%v, %v: %s", err, ended, text)
					}
					b.ReportMetric(float64(each.Nanoseconds()), "ns/message")
					p.Close()
				})
			}
		}
	}
}
