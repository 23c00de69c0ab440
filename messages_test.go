package tutti_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/tuttitest"
)

// cycleTime is Config.Timeout in tests of ranks that wait for each other.
const cycleTime = time.Second

// messageTests are programs of four ranks that use messages. The cycle programs end with an error that
// poisons the Comm.
var messageTests = []struct {
	name string
	body func(ctx context.Context, c *tutti.Comm) error
}{
	{"shorter", recvShorter},
	{"too long", recvTooLong},
	{"any rank", recvAnyRank},
	{"slices", recvSlices},
	{"cancelled", recvCancelled},
	{"cancelled in a loop", recvCancelledInLoop},
	{"other tag", recvOtherTag},
	{"to itself", sendToItself},
	{"zero length", sendNothing},
	{"waits for a slow rank", recvFromSlowRank},
	{"slices of all", exchangeSlices},
	{"batch in any order", recvInAnyOrder},
	{"all gone", recvFromNobody},
	{"exact", recvExact},
	{"cycle of sends", cycleOfSends},
	{"cycle of receives", cycleOfReceives},
	{"cycle with itself", cycleOfOne},
}

// TestMessages runs the programs on goroutine ranks.
func TestMessages(t *testing.T) {
	for _, m := range messageTests {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			err := tutti.RunLocal(t.Context(), 4, tutti.Config{Timeout: cycleTime}, m.body)
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestMessagesSimulated runs the programs in the simulator.
func TestMessagesSimulated(t *testing.T) {
	for _, m := range messageTests {
		if m.name == "waits for a slow rank" {
			continue // it waits for a deadline in real time
		}
		t.Run(m.name, func(t *testing.T) {
			tuttitest.Run(t, tuttitest.Options{Ranks: 4, Timeout: cycleTime}, m.body)
		})
	}
}

// TestMessagesBetweenProcesses runs the programs on processes that share memory, use TCP, or form two
// hosts.
func TestMessagesBetweenProcesses(t *testing.T) {
	for name, env := range map[string][]string{
		"shm":       nil,
		"tcp":       {"TUTTI_TEST_NETWORK=1"},
		"hierarchy": {"TUTTI_TEST_HOSTS=2"},
	} {
		t.Run(name, func(t *testing.T) {
			startRanks(t, 4, append(env, "TUTTI_TEST_BODY=messages"))
		})
	}
}

// messagesBody runs the programs on one process, each on a Comm of its own: a Dup, whose failure does
// not affect the others.
func messagesBody() error {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	rank := envNumber("TUTTI_TEST_RANK")
	cfg := tutti.Config{
		Rank: rank, Size: envNumber("TUTTI_TEST_SIZE"), Addr: os.Getenv("TUTTI_TEST_ADDR"), Timeout: cycleTime,
		NoSharedMemory: os.Getenv("TUTTI_TEST_NETWORK") != "",
	}
	if n := envNumber("TUTTI_TEST_HOSTS"); n > 0 {
		cfg.Host = fmt.Sprint("host ", rank%n)
	}
	world, err := tutti.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer world.Close()
	for _, m := range messageTests {
		c, err := world.Dup(ctx)
		if err != nil {
			return fmt.Errorf("before %q: %w", m.name, err)
		}
		if err := m.body(ctx, c); err != nil {
			return fmt.Errorf("%q: %w", m.name, err)
		}
		if err := c.Close(); err != nil {
			return fmt.Errorf("%q: Close: %w", m.name, err)
		}
	}
	return nil
}

// expect returns an error unless a receive got m and the values.
func expect[T comparable](m, want tutti.Message, got, values []T, err error) error {
	if err != nil {
		return err
	}
	if m != want || !slices.Equal(got, values) {
		return fmt.Errorf("received %+v, %v; want %+v, %v", m, got, want, values)
	}
	return nil
}

// recvOtherTag receives with another tag than the sender's, until the error names the sender's tag.
func recvOtherTag(ctx context.Context, c *tutti.Comm) error {
	switch c.Rank() {
	case 0:
		for {
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			_, err := c.Recv(short, 1, tutti.Of([]int{0}), 9)
			cancel()
			switch {
			case err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
				return fmt.Errorf("Recv with another tag: %w", err)
			case strings.Contains(err.Error(), "one with tag 8 waits to be received"):
				_, err := c.Recv(ctx, 1, tutti.Of([]int{0}), 8)
				return err
			}
		}
	case 1:
		return c.Send(ctx, 0, tutti.Of([]int{1}), 8)
	}
	return nil
}

// recvShorter receives a message into a larger buffer.
func recvShorter(ctx context.Context, c *tutti.Comm) error {
	switch c.Rank() {
	case 0:
		return c.Send(ctx, 1, tutti.Of([]float32{1, 2, 3}), 7)
	case 1:
		x := []float32{9, 9, 9, 9, 9}
		m, err := c.Recv(ctx, 0, tutti.Of(x), 7)
		return expect(m, tutti.Message{From: 0, Tag: 7, Len: 3, Type: tutti.Float32Type}, x, []float32{1, 2, 3, 9, 9}, err)
	}
	return nil
}

// recvTooLong receives into a buffer that is too short. The message stays the first, and the group
// healthy.
func recvTooLong(ctx context.Context, c *tutti.Comm) error {
	switch c.Rank() {
	case 0:
		for i := range int64(3) {
			if err := c.Send(ctx, 1, tutti.Of([]int64{i, i}), 7); err != nil {
				return err
			}
		}
	case 1:
		for i := range int64(3) {
			x := make([]int64, 2)
			if _, err := c.Recv(ctx, tutti.AnyRank, tutti.Of(x[:1]), 7); !errors.Is(err, tutti.ErrInvalid) || !strings.Contains(err.Error(), "2 elements") {
				return fmt.Errorf("a short buffer: %w", err)
			}
			m, err := c.Recv(ctx, 0, tutti.Of(x), 7)
			if err := expect(m, tutti.Message{Tag: 7, Len: 2, Type: tutti.Int64Type}, x, []int64{i, i}, err); err != nil {
				return err
			}
		}
	}
	return c.Barrier(ctx)
}

// recvAnyRank receives from all other ranks. The messages of each rank arrive in order.
func recvAnyRank(ctx context.Context, c *tutti.Comm) error {
	const each = 20
	if c.Rank() != 0 {
		for i := range int32(each) {
			if err := c.Send(ctx, 0, tutti.Of([]int32{i}), c.Rank()%2); err != nil {
				return err
			}
		}
		return c.Barrier(ctx)
	}
	next := make([]int32, c.Size())
	x := make([]int32, 1)
	for tag, n := range []int{each, 2 * each} { // rank 2 sends tag 0, ranks 1 and 3 send tag 1
		for range n {
			m, err := c.Recv(ctx, tutti.AnyRank, tutti.Of(x), tag)
			if err := expect(m, tutti.Message{From: m.From, Tag: tag, Len: 1, Type: tutti.Int32Type}, x, []int32{next[m.From]}, err); err != nil {
				return err
			}
			next[m.From]++
		}
	}
	return c.Barrier(ctx)
}

// recvSlices receives messages whose lengths the receiver does not know.
func recvSlices(ctx context.Context, c *tutti.Comm) error {
	lengths := []int{0, 1, 1000, 100_000}
	next, previous := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	sends := c.Batch()
	for i, n := range lengths {
		sends.Send(next, tutti.Of(slices.Repeat([]uint8{uint8(i)}, n)), 3)
	}
	w, err := sends.Start(ctx)
	if err != nil {
		return err
	}
	for i, n := range lengths {
		got, m, err := tutti.RecvSlice[uint8](ctx, c, previous, 3)
		if err := expect(m, tutti.Message{From: previous, Tag: 3, Len: n, Type: tutti.Uint8Type}, got, slices.Repeat([]uint8{uint8(i)}, n), err); err != nil {
			return err
		}
	}
	return w.Wait(ctx)
}

// recvCancelled ends the context of a receive before there is a message. The error is the
// context's alone, and the group stays healthy.
func recvCancelled(ctx context.Context, c *tutti.Comm) error {
	if c.Rank() < 2 {
		for _, from := range []int{1 - c.Rank(), tutti.AnyRank} {
			own, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			_, err := c.Recv(own, from, tutti.Of(make([]int64, 1)), 5)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, tutti.ErrTimeout) || errors.Is(err, tutti.ErrAborted) {
				return fmt.Errorf("a receive whose deadline has passed: %w", err)
			}
		}
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	if c.Rank() < 2 {
		x := []int64{0}
		if err := c.SendRecv(ctx, 1-c.Rank(), tutti.Of([]int64{int64(c.Rank())}), 1-c.Rank(), tutti.Of(x), 5); err != nil || x[0] != int64(1-c.Rank()) {
			return fmt.Errorf("received %v: %w", x, err)
		}
	}
	return c.Barrier(ctx)
}

// recvCancelledInLoop cancels receives while messages are on the way. Each message arrives once and in
// order.
func recvCancelledInLoop(ctx context.Context, c *tutti.Comm) error {
	const messages = 200
	switch c.Rank() {
	case 0:
		for i := range int64(messages) {
			if err := c.Send(ctx, 1, tutti.Of(slices.Repeat([]int64{i}, int(i*37%3000)+1)), 5); err != nil {
				return err
			}
		}
	case 1:
		for i, tries := int64(0), 0; i < messages; tries++ {
			own, cancel := context.WithTimeout(ctx, time.Duration(tries%7)*10*time.Microsecond)
			x, m, err := tutti.RecvSlice[int64](own, c, tries%2-1, 5)
			cancel()
			switch {
			case err == nil && (x[0] != i || m.Len != int(i*37%3000)+1):
				return fmt.Errorf("message %d with %d elements, want message %d", x[0], m.Len, i)
			case err == nil:
				i++
			case !errors.Is(err, context.DeadlineExceeded) || c.Err() != nil:
				return err
			}
		}
	}
	return c.Barrier(ctx)
}

// sendToItself sends and receives on one rank.
func sendToItself(ctx context.Context, c *tutti.Comm) error {
	x := []int64{0, 0}
	if err := c.SendRecv(ctx, c.Rank(), tutti.Of([]int64{5, 6}), c.Rank(), tutti.Of(x), 1); err != nil || x[1] != 6 {
		return fmt.Errorf("received %v: %w", x, err)
	}
	w, err := c.Batch().Send(c.Rank(), tutti.Of([]int64{7}), 2).Start(ctx)
	if err != nil {
		return err
	}
	m, err := c.Recv(ctx, tutti.AnyRank, tutti.Of(x), 2)
	if err := expect(m, tutti.Message{From: c.Rank(), Tag: 2, Len: 1, Type: tutti.Int64Type}, x, []int64{7, 6}, err); err != nil {
		return err
	}
	return w.Wait(ctx)
}

// sendNothing sends messages of length zero, and of a type.
func sendNothing(ctx context.Context, c *tutti.Comm) error {
	switch c.Rank() {
	case 0:
		return errors.Join(c.Send(ctx, 1, tutti.Of([]float64{}), 1), c.Send(ctx, 1, tutti.Of([]float64{}), 1))
	case 1:
		m, err := c.Recv(ctx, 0, tutti.Of([]float64{}), 1)
		if err := expect(m, tutti.Message{Tag: 1, Type: tutti.Float64Type}, nil, []int{}, err); err != nil {
			return err
		}
		x, m, err := tutti.RecvSlice[float64](ctx, c, tutti.AnyRank, 1)
		return expect(m, tutti.Message{Tag: 1, Type: tutti.Float64Type}, x, []float64{}, err)
	}
	return nil
}

// recvExact receives by a Batch, which needs the exact length and a named rank.
func recvExact(ctx context.Context, c *tutti.Comm) error {
	if _, err := c.Batch().Recv(tutti.AnyRank, tutti.Of([]int{0}), 1).Start(ctx); !errors.Is(err, tutti.ErrInvalid) || !strings.Contains(err.Error(), "AnyRank") {
		return fmt.Errorf("a Batch with a receive from any rank: %w", err)
	}
	if err := c.SendRecv(ctx, 0, tutti.Of([]int{0}), tutti.AnyRank, tutti.Of([]int{0}), 1); !errors.Is(err, tutti.ErrInvalid) {
		return fmt.Errorf("SendRecv from any rank: %w", err)
	}
	var err error
	switch c.Rank() {
	case 0:
		err = c.Send(ctx, 1, tutti.Of([]int{1}), 1)
	case 1:
		err = c.Batch().Recv(0, tutti.Of([]int{0, 0}), 1).Run(ctx)
	}
	if err == nil {
		err = c.Barrier(ctx)
	}
	if !errors.Is(err, tutti.ErrMismatch) {
		return fmt.Errorf("a Batch that receives another length: %w", err)
	}
	return nil
}

// recvFromSlowRank waits for longer than Config.Timeout.
func recvFromSlowRank(ctx context.Context, c *tutti.Comm) error {
	slow, cancel := context.WithTimeout(ctx, 3*cycleTime)
	defer cancel()
	switch c.Rank() {
	case 0: // waits for a message that no rank sends
		if _, err := c.Recv(slow, tutti.AnyRank, tutti.Of([]int{0}), 9); !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		for r := 1; r < c.Size(); r++ {
			if err := c.Send(ctx, r, tutti.Of([]int{1}), 1); err != nil {
				return err
			}
		}
		return nil
	case 1:
		_, err := c.Recv(ctx, tutti.AnyRank, tutti.Of([]int{0}), 1)
		return err
	}
	_, err := c.Recv(ctx, 0, tutti.Of([]int{0}), 1)
	return err
}

// exchangeSlices checks the helpers that exchange slices of lengths that others do not know.
func exchangeSlices(ctx context.Context, c *tutti.Comm) error {
	shares := make([][]int32, c.Size())
	for r := range shares {
		shares[r] = slices.Repeat([]int32{int32(10*c.Rank() + r)}, c.Rank()+r)
	}
	got, err := tutti.AllToAllSlices(ctx, c, shares)
	if err != nil {
		return err
	}
	for r, s := range got {
		if !slices.Equal(s, slices.Repeat([]int32{int32(10*r + c.Rank())}, c.Rank()+r)) {
			return fmt.Errorf("of rank %d: %v", r, s)
		}
	}
	var mine []string
	word := []byte("hello")
	if c.Rank() != 2 {
		word = nil
	}
	word, err = tutti.BroadcastSlice(ctx, c, word, 2)
	if err != nil || string(word) != "hello" {
		return fmt.Errorf("%v %q: %w", mine, word, err)
	}
	if _, err := tutti.AllToAllSlices(ctx, c, shares[1:]); !errors.Is(err, tutti.ErrInvalid) {
		return err
	}
	return nil
}

// recvFromNobody receives from any rank when all other ranks have closed the Comm.
func recvFromNobody(ctx context.Context, c *tutti.Comm) error {
	if c.Rank() != 0 {
		return c.Close()
	}
	_, err := c.Recv(ctx, tutti.AnyRank, tutti.Of([]int{0}), 1)
	var e *tutti.Error
	if !errors.Is(err, tutti.ErrRankLost) || !errors.As(err, &e) || !slices.Equal(e.Lost, []int{1, 2, 3}) {
		return fmt.Errorf("a receive from any rank when all have left: %w", err)
	}
	return nil
}

// cycleOfSends lets two ranks send to each other. The others wait for one of them.
func cycleOfSends(ctx context.Context, c *tutti.Comm) (err error) {
	switch c.Rank() {
	case 0, 1:
		err = c.Send(ctx, 1-c.Rank(), tutti.Of([]int{0}), 4)
	default:
		_, err = c.Recv(ctx, c.Rank()-2, tutti.Of([]int{0}), 8)
	}
	return cycleError(err, "rank 0 waits to send to rank 1 with tag 4", "rank 1 waits to send to rank 0 with tag 4", "SendRecv")
}

// cycleOfReceives lets all ranks receive from the next one.
func cycleOfReceives(ctx context.Context, c *tutti.Comm) error {
	_, err := c.Recv(ctx, (c.Rank()+1)%c.Size(), tutti.Of([]int{0}), 4)
	return cycleError(err, "rank 3 waits to receive from rank 0 with tag 4", "rank 1 waits to receive from rank 2 with tag 4")
}

// cycleOfOne lets a rank wait for itself.
func cycleOfOne(ctx context.Context, c *tutti.Comm) error {
	var err error
	if c.Rank() == 0 {
		err = c.Send(ctx, 0, tutti.Of([]int{0}), 4)
	} else {
		_, err = c.Recv(ctx, 0, tutti.Of([]int{0}), 8)
	}
	return cycleError(err, "rank 0 waits to send to rank 0 with tag 4")
}

// cycleError returns an error unless err says that ranks have waited for each other, as texts say.
func cycleError(err error, texts ...string) error {
	if !errors.Is(err, tutti.ErrTimeout) {
		return fmt.Errorf("ranks that wait for each other: %w", err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			return fmt.Errorf("the error does not say %q: %w", text, err)
		}
	}
	return nil
}

// recvInAnyOrder receives a Batch whose messages arrive in another order, because their senders wait for
// each other.
func recvInAnyOrder(ctx context.Context, c *tutti.Comm) error {
	x := []int32{0}
	switch c.Rank() {
	case 0:
		a, b, d := []int32{0}, []int32{0}, []int32{0}
		if err := c.Batch().Recv(1, tutti.Of(a), 1).Recv(2, tutti.Of(b), 1).Recv(2, tutti.Of(d), 2).Run(ctx); err != nil {
			return err
		}
		if a[0] != 10 || b[0] != 20 || d[0] != 21 {
			return fmt.Errorf("received %v, %v and %v", a, b, d)
		}
		if err := c.Batch().Recv(1, tutti.Of(a), 3).Recv(2, tutti.Of(b), 3).Run(ctx); err != nil || a[0] != 11 || b[0] != 22 {
			return fmt.Errorf("received %v and %v: %w", a, b, err)
		}
	case 1:
		_, err := c.Recv(ctx, 2, tutti.Of(x), 1)
		err = errors.Join(err, c.Send(ctx, 0, tutti.Of([]int32{10}), 1))
		_, again := c.Recv(ctx, 2, tutti.Of(x), 3)
		return errors.Join(err, again, c.Send(ctx, 0, tutti.Of([]int32{11}), 3))
	case 2:
		return errors.Join(
			c.Send(ctx, 0, tutti.Of([]int32{21}), 2), c.Send(ctx, 0, tutti.Of([]int32{20}), 1), c.Send(ctx, 1, tutti.Of(x), 1),
			c.Send(ctx, 0, tutti.Of([]int32{22}), 3), c.Send(ctx, 1, tutti.Of(x), 3),
		)
	}
	return nil
}
