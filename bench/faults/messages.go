package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/tutti-go/tutti"
)

const (
	messageRanks   = 4
	longestMessage = 1 << 18 // elements: 1 MiB
	batchMessages  = 40      // to each rank: more than a ring has records
	continuedCalls = 3       // after the fault; then the exchange counts as continued
)

// Tags of messages.
const (
	ringTag = iota
	batchTag
	sendTag
)

// An exchange is one rank's part of an exchange of messages between all ranks.
type exchange struct {
	c         *tutti.Comm
	seed      uint64 // the same on all ranks
	note      *operationFlag
	did       atomic.Int64   // calls that succeeded
	continues atomic.Bool    // the fault is over
	continued sync.WaitGroup // goroutines that have not made continuedCalls since
}

// messageKinds returns the environment of a trial with messages: in every other trial receivers do not
// name the sender, and in two of four other processes may not read the memory of a rank.
func messageKinds(trial int) []string {
	var env []string
	if trial%2 > 0 {
		env = append(env, "FAULTS_ANY=1")
	}
	if trial/2%2 > 0 {
		env = append(env, "FAULTS_UNREADABLE=1")
	}
	return env
}

// messagesRank exchanges messages of 4 bytes to 1 MiB with all ranks, in several goroutines, until a
// call fails, and reports this failure. Every call must fail in the same way. If it gets a line of
// input, it reports that it continues as soon as each goroutine has made some further calls. With
// FAULTS_ANY receivers do not name the sender. With FAULTS_UNREADABLE other processes may not read the
// memory of this one, which needs root. It exits as mixRank does.
func messagesRank(c *tutti.Comm, in *bufio.Reader) error {
	note, err := openFlag(fmt.Sprint(os.Getenv("FAULTS_NOTE"), c.Rank()))
	if err != nil {
		return err
	}
	if os.Getenv("FAULTS_UNREADABLE") != "" && os.Getuid() == 0 {
		const nobody = 65534
		if err := syscall.Setuid(nobody); err != nil {
			return err
		}
	}
	shared, err := tutti.Alloc[uint32](context.Background(), c, longestMessage)
	if err != nil {
		return err
	}
	seed, _ := strconv.ParseUint(os.Getenv("FAULTS_SEED"), 10, 64)
	m := &exchange{c: c, seed: seed, note: note}
	calls := []func(k int) error{m.ring(shared.Slice()), m.batch()}
	anyRank := os.Getenv("FAULTS_ANY") != ""
	for r := range c.Size() {
		if r != c.Rank() {
			calls = append(calls, m.send(r))
		}
		if r != c.Rank() && !anyRank {
			calls = append(calls, m.receive(r))
		}
	}
	if anyRank {
		calls = append(calls, m.receive(tutti.AnyRank))
	}
	m.continued.Add(len(calls))
	inputEnds := make(chan struct{})
	go func() {
		defer close(inputEnds)
		if _, err := in.ReadString('\n'); err == nil {
			go m.reportContinued()
			_, _ = in.ReadString('\n')
		}
		c.Abort(errors.New("the trial has ended"))
	}()
	m.report(m.run(calls))
	if os.Getenv("FAULTS_LEAVE") != "" {
		return nil
	}
	<-inputEnds
	return c.Close()
}

// run makes each call repeatedly, in a goroutine of its own, until it fails. It returns the errors. An
// error that is not the Comm's, such as a wrong result, aborts the Comm.
func (m *exchange) run(calls []func(k int) error) []error {
	errs := make([]error, len(calls))
	var all sync.WaitGroup
	for i, call := range calls {
		all.Go(func() {
			further := 0
			for k := 0; ; k++ {
				if errs[i] = call(k); errs[i] != nil {
					if m.c.Err() == nil {
						m.c.Abort(errs[i])
					}
					return
				}
				if m.did.Add(1) == 20 {
					fmt.Println("ready")
				}
				if m.continues.Load() {
					if further++; further == continuedCalls {
						m.continued.Done()
					}
				}
			}
		})
	}
	all.Wait()
	return errs
}

// report reports a wrong result, or else how all calls have failed.
func (m *exchange) report(errs []error) {
	did := int(m.did.Load())
	all := newEnd(did, nil, errs[0])
	for _, err := range errs {
		e := newEnd(did, nil, err)
		if all.Wrong == "" && (e.Wrong != "" || e.Kind != all.Kind || !slices.Equal(e.Lost, all.Lost)) {
			all.Wrong = fmt.Sprintf("%q, and in another call %q", all.Text, e.Text)
		}
	}
	all.print()
}

// reportContinued reports that messages continue to arrive.
func (m *exchange) reportContinued() {
	m.continues.Store(true)
	m.continued.Wait()
	report(int(m.did.Load()), nil)
}

// call sets the flag during a call.
func (m *exchange) call(f func() error) error {
	m.note.enter()
	defer m.note.leave()
	return f()
}

// ring returns a call of SendRecv in a ring of all ranks. The source is in shared memory.
func (m *exchange) ring(shared []uint32) func(k int) error {
	me, size := m.c.Rank(), m.c.Size()
	to, from := (me+1)%size, (me+size-1)%size
	room := make([]uint32, longestMessage)
	return func(k int) error {
		out, in := messageID{me, to, ringTag, k}, messageID{from, me, ringTag, k}
		src, dst := shared[:out.length(m.seed, longestMessage)], room[:in.length(m.seed, longestMessage)]
		out.fill(src)
		err := m.call(func() error {
			return m.c.SendRecv(context.Background(), to, tutti.Of(src), from, tutti.Of(dst), ringTag)
		})
		if err != nil {
			return err
		}
		return in.check(dst)
	}
}

// batch returns a call that exchanges many messages of at most 4 KiB with every rank, this one
// included.
func (m *exchange) batch() func(k int) error {
	const longest = 1 << 10
	b := m.c.Batch()
	return func(k int) error {
		b.Reset()
		received := make(map[messageID][]uint32)
		for r := range m.c.Size() {
			for i := range batchMessages {
				out, in := messageID{m.c.Rank(), r, batchTag, k*batchMessages + i}, messageID{r, m.c.Rank(), batchTag, k*batchMessages + i}
				src := make([]uint32, out.length(m.seed, longest))
				out.fill(src)
				received[in] = make([]uint32, in.length(m.seed, longest))
				b.Send(r, tutti.Of(src), batchTag).Recv(r, tutti.Of(received[in]), batchTag)
			}
		}
		if err := m.call(func() error { return b.Run(context.Background()) }); err != nil {
			return err
		}
		for in, x := range received {
			if err := in.check(x); err != nil {
				return err
			}
		}
		return nil
	}
}

// send returns a call that sends a message to a rank.
func (m *exchange) send(to int) func(k int) error {
	room := make([]uint32, longestMessage)
	return func(k int) error {
		out := messageID{m.c.Rank(), to, sendTag, k}
		src := room[:out.length(m.seed, longestMessage)]
		out.fill(src)
		return m.call(func() error { return m.c.Send(context.Background(), to, tutti.Of(src), sendTag) })
	}
}

// receive returns a call that receives what another rank's call of send sends.
func (m *exchange) receive(from int) func(k int) error {
	next := make([]int, m.c.Size()) // by sender
	room := make([]uint32, longestMessage)
	return func(k int) error {
		var got []uint32
		var d tutti.Message
		err := m.call(func() (err error) {
			if k%2 == 0 {
				got, d, err = tutti.RecvSlice[uint32](context.Background(), m.c, from, sendTag)
				return err
			}
			d, err = m.c.Recv(context.Background(), from, tutti.Of(room), sendTag)
			got = room[:d.Len]
			return err
		})
		if err != nil {
			return err
		}
		in := messageID{d.From, m.c.Rank(), sendTag, next[d.From]}
		next[d.From]++
		if len(got) != in.length(m.seed, longestMessage) {
			return &wrongError{fmt.Sprintf("%+v has %d elements", in, len(got))}
		}
		return in.check(got)
	}
}

// A messageID identifies a message, and with it its length and its data.
type messageID struct{ from, to, tag, number int }

// length returns the number of elements, at most longest, a power of two. Short messages are as
// frequent as long ones.
func (d messageID) length(seed uint64, longest int) int {
	rnd := rand.New(rand.NewPCG(seed, uint64(d.elem(0))))
	n := 1 << rnd.IntN(bits.Len(uint(longest)))
	return min(n+rnd.IntN(n), longest)
}

// elem returns element i.
func (d messageID) elem(i int) uint32 {
	return uint32((d.from*messageRanks+d.to)*4+d.tag)<<26 ^ uint32(d.number)*0x9e3779b1 ^ uint32(i)*0x85ebca77
}

func (d messageID) fill(x []uint32) {
	for i := range x {
		x[i] = d.elem(i)
	}
}

// check returns an error if x are not the data of the message.
func (d messageID) check(x []uint32) error {
	for i, v := range x {
		if v != d.elem(i) {
			return &wrongError{fmt.Sprintf("element %d of %d of %+v is %#x, want %#x", i, len(x), d, v, d.elem(i))}
		}
	}
	return nil
}
