package value_test

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/value"
)

// deadline is the time that no test needs.
const deadline = time.Minute

type (
	point struct{ X, Y float64 }
	spot  struct{ X, Y float64 } // as point, with another name
	node  struct {
		Name string
		Next *node
		Kids map[string]*node
	}
	shape interface{ Area() float64 }
	disc  struct{ R float64 }
	box   struct{ W, H float64 } // not registered
	bad   struct{ Rank int }     // cannot be encoded where Rank is not zero
	loud  struct{}               // its encoder panics
)

func (d disc) Area() float64 { return d.R * d.R }
func (b box) Area() float64  { return b.W * b.H }

var errBad = errors.New("this value stays here")

func (b bad) GobEncode() ([]byte, error) {
	if b.Rank != 0 {
		return nil, errBad
	}
	return []byte{1}, nil
}

func (b *bad) GobDecode([]byte) error { return nil }

func (loud) GobEncode() ([]byte, error) { panic("loud") }
func (*loud) GobDecode([]byte) error    { return nil }

// sample is one value of each kind that the tests pass.
type sample struct {
	B     bool
	I     int
	U     uint8
	F     float32
	C     complex128
	S     string
	Bytes []byte
	Array [3]int16
	P     *point
	M     map[string][]int
	Shape shape
	When  time.Time
	Tree  *node
	hid   int
}

func newSample(rank int) sample {
	return sample{
		B: true, I: -rank, U: uint8(rank), F: 1.5, C: complex(1, 2), S: strings.Repeat("s", rank), Bytes: []byte{1, 2},
		Array: [3]int16{1, 2, 3}, P: &point{1, 2}, M: map[string][]int{"a": {rank}, "b": {}}, Shape: disc{2},
		When: time.Unix(int64(rank), 5).UTC(), Tree: &node{Name: "root", Kids: map[string]*node{"kid": {Name: "kid"}}},
	}
}

func TestMain(m *testing.M) {
	gob.Register(disc{})
	if os.Getenv(bodyVariable) != "" {
		if err := processBody(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// run runs fn on n goroutine ranks.
func run(t *testing.T, n int, fn func(ctx context.Context, c *tutti.Comm) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if err := tutti.RunLocal(ctx, n, tutti.Config{}, fn); err != nil {
		t.Fatal(err)
	}
}

// same returns an error unless two values are deeply equal.
func same(what string, got, want any) error {
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%s: %#v, want %#v", what, got, want)
	}
	return nil
}

// trip passes v through every function of the package and returns an error unless want arrives.
func trip[T any](ctx context.Context, c *tutti.Comm, v, want T) error {
	what := fmt.Sprintf("%T", &v)
	const tag = 3
	if c.Rank() != 0 {
		if err := value.Send(ctx, c, 0, v, tag); err != nil {
			return err
		}
	} else {
		for range c.Size() - 1 {
			got, m, err := value.Recv[T](ctx, c, tutti.AnyRank, tag)
			if err != nil {
				return err
			}
			if m.From < 1 || m.Tag != tag || m.Type != tutti.Uint8Type || m.Len == 0 {
				return fmt.Errorf("%s: message %+v", what, m)
			}
			if err := same(what, got, want); err != nil {
				return err
			}
		}
	}
	root := c.Size() - 1
	b := v
	if c.Rank() != root {
		var zero T
		b = zero
	}
	if err := value.Broadcast(ctx, c, &b, root); err != nil {
		return err
	}
	if c.Rank() != root {
		if err := same("Broadcast of "+what, b, want); err != nil {
			return err
		}
	}
	all, err := value.AllGather(ctx, c, v)
	if err != nil {
		return err
	}
	for _, got := range all {
		if err := same("AllGather of "+what, got, want); err != nil {
			return err
		}
	}
	last, err := value.AllReduce(ctx, c, v, func(_, b T) T { return b })
	if err != nil {
		return err
	}
	return same("AllReduce of "+what, last, want)
}

// trips passes values of many types.
func trips(ctx context.Context, c *tutti.Comm) error {
	list := &node{Name: "a", Next: &node{Name: "b", Next: &node{Name: "c"}}}
	wantSample := newSample(2)
	wantSample.M["b"] = nil
	x := newSample(2)
	x.hid = 1 // is not sent
	pp := &list
	var noNode *node
	for _, err := range []func() error{
		func() error { return trip(ctx, c, 7, 7) },
		func() error { return trip(ctx, c, 0.0, 0.0) },
		func() error { return trip(ctx, c, "", "") },
		func() error { return trip(ctx, c, "word", "word") },
		func() error { return trip(ctx, c, struct{}{}, struct{}{}) },
		func() error { return trip(ctx, c, point{1, math.Inf(1)}, point{1, math.Inf(1)}) },
		func() error { return trip(ctx, c, point{}, point{}) },
		func() error { return trip(ctx, c, &point{3, 4}, &point{3, 4}) },
		func() error { return trip(ctx, c, pp, pp) },
		func() error { return trip(ctx, c, noNode, nil) },
		func() error { return trip(ctx, c, &noNode, nil) },
		func() error { return trip(ctx, c, list, list) },
		func() error { return trip(ctx, c, map[string]int{"a": 1, "b": 2}, map[string]int{"a": 1, "b": 2}) },
		func() error { return trip(ctx, c, map[string]int{}, map[string]int{}) },
		func() error { return trip(ctx, c, map[string]int(nil), map[string]int{}) },
		func() error { return trip(ctx, c, []string{"a", ""}, []string{"a", ""}) },
		func() error { return trip(ctx, c, []string{}, nil) },
		func() error { return trip(ctx, c, [2]bool{true}, [2]bool{true}) },
		func() error { return trip[shape](ctx, c, disc{2}, disc{2}) },
		func() error { return trip[shape](ctx, c, nil, nil) },
		func() error { return trip[any](ctx, c, 5, 5) },
		func() error { return trip(ctx, c, time.Unix(5, 6).UTC(), time.Unix(5, 6).UTC()) },
		func() error { return trip(ctx, c, bad{}, bad{}) },
		func() error { return trip(ctx, c, x, wantSample) },
	} {
		if err := err(); err != nil {
			return err
		}
	}
	return nil
}

// TestTrips passes values of many types between goroutine ranks, also in a group of one rank.
func TestTrips(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		run(t, n, trips)
	}
}

// TestReplace checks that Broadcast replaces a value, and does not merge into it.
func TestReplace(t *testing.T) {
	run(t, 2, func(ctx context.Context, c *tutti.Comm) error {
		v := map[string]point{"root": {Y: 1}}
		if c.Rank() == 1 {
			v = map[string]point{"root": {X: 9}, "other": {}}
		}
		if err := value.Broadcast(ctx, c, &v, 0); err != nil {
			return err
		}
		return same("the map", v, map[string]point{"root": {Y: 1}})
	})
}

// TestOrder checks that AllReduce combines in rank order, on rank 0, copies of the values.
func TestOrder(t *testing.T) {
	run(t, 4, func(ctx context.Context, c *tutti.Comm) error {
		mine := map[string]int{fmt.Sprint("rank ", c.Rank()): c.Rank()}
		all, err := value.AllReduce(ctx, c, mine, func(a, b map[string]int) map[string]int {
			for k, n := range b {
				a[k] += n
			}
			return a
		})
		if err != nil {
			return err
		}
		if err := errors.Join(
			same("the union", all, map[string]int{"rank 0": 0, "rank 1": 1, "rank 2": 2, "rank 3": 3}),
			same("the own value", len(mine), 1),
		); err != nil {
			return err
		}
		text, err := value.AllReduce(ctx, c, fmt.Sprint(c.Rank()), func(a, b string) string { return "(" + a + b + ")" })
		return errors.Join(err, same("the text", text, "(((01)2)3)"))
	})
}

// TestBig passes values of 50 MB.
func TestBig(t *testing.T) {
	run(t, 2, big)
}

// big passes a value of 50 MB from rank 1 to rank 0 and from rank 0 to all.
func big(ctx context.Context, c *tutti.Comm) error {
	v := map[string][]byte{"big": make([]byte, 50e6)}
	v["big"][1e6] = 1
	got := v
	var err error
	switch c.Rank() {
	case 0:
		got, _, err = value.Recv[map[string][]byte](ctx, c, 1, 0)
	case 1:
		got = nil
		err = value.Send(ctx, c, 0, v, 0)
	}
	if err == nil {
		err = value.Broadcast(ctx, c, &got, 0)
	}
	return errors.Join(err, same("the value", got, v))
}

// wantError returns an error unless err is a *tutti.Error with all these properties.
func wantError(err error, kind error, rank int, texts ...string) error {
	e := (*tutti.Error)(nil)
	if !errors.As(err, &e) || !errors.Is(err, kind) || e.Rank != rank {
		return fmt.Errorf("the error is %w, want %w of rank %d", err, kind, rank)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			return fmt.Errorf("the error %w does not contain %q", err, text)
		}
	}
	return nil
}

// healthy returns an error unless all functions work.
func healthy(ctx context.Context, c *tutti.Comm) error {
	return errors.Join(c.Err(), trip(ctx, c, point{1, 2}, point{1, 2}), c.Barrier(ctx))
}

// mistakes makes calls that fail, and checks after each one that the Comm is healthy. It needs more
// than one rank.
func mistakes(ctx context.Context, c *tutti.Comm) error {
	last := c.Size() - 1
	for _, call := range []func() error{
		func() error { return mistypedMessages(ctx, c) },
		func() error { // an encoder that fails on the last rank
			v := bad{}
			if c.Rank() == last {
				v.Rank = last
			}
			_, err := value.AllGather(ctx, c, v)
			_, err2 := value.AllReduce(ctx, c, v, func(a, _ bad) bad { return a })
			err3 := value.Broadcast(ctx, c, &v, last)
			for _, err := range []error{err, err2, err3} {
				if err := wantError(err, tutti.ErrInvalid, last, errBad.Error(), "bad"); err != nil {
					return err
				}
				if errors.Is(err, errBad) != (c.Rank() == last) {
					return fmt.Errorf("rank %d: %w", c.Rank(), err)
				}
			}
			return nil
		},
		func() error { // the result cannot be encoded
			_, err := value.AllReduce(ctx, c, bad{}, func(_, _ bad) bad { return bad{7} })
			return wantError(err, tutti.ErrInvalid, 0, errBad.Error())
		},
		func() error { // a channel, and a type that is not registered
			_, err := value.AllGather(ctx, c, make(chan int))
			_, err2 := value.AllGather[shape](ctx, c, box{1, 2})
			_, err3 := value.AllGather(ctx, c, func() {})
			return errors.Join(wantError(err, tutti.ErrInvalid, 0, "chan int"), wantError(err2, tutti.ErrInvalid, 0, "not registered"),
				wantError(err3, tutti.ErrInvalid, 0, "func()"))
		},
		func() error { // different types
			var err error
			if c.Rank() == last {
				_, err = value.AllGather(ctx, c, spot{})
			} else {
				_, err = value.AllGather(ctx, c, point{})
			}
			return wantError(err, tutti.ErrMismatch, last, "rank 0 passes value_test.point", fmt.Sprintf("rank %d passes value_test.spot", last))
		},
		func() error { // different types of one name
			type inner struct{ X int }
			var err error
			if c.Rank() == last {
				type inner struct{ Y int }
				_, err = value.AllReduce(ctx, c, inner{}, func(a, _ inner) inner { return a })
			} else {
				_, err = value.AllReduce(ctx, c, inner{}, func(a, _ inner) inner { return a })
			}
			return wantError(err, tutti.ErrMismatch, last, "another type of that name")
		},
	} {
		if err := call(); err != nil {
			return err
		}
		if err := healthy(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// mistypedMessages sends what cannot be sent or received.
func mistypedMessages(ctx context.Context, c *tutti.Comm) error {
	last := c.Size() - 1
	switch c.Rank() {
	case last:
		if err := wantError(value.Send(ctx, c, 0, bad{last}, 1), tutti.ErrInvalid, last, errBad.Error()); err != nil {
			return err
		}
		if err := wantError(value.Send(ctx, c, 0, func() {}, 1), tutti.ErrInvalid, last, "func()"); err != nil {
			return err
		}
		return errors.Join(value.Send(ctx, c, 0, point{1, 2}, 1), value.Send(ctx, c, 0, 5, 1))
	case 0:
		if last == 0 {
			return nil
		}
		_, m, err := value.Recv[spot](ctx, c, last, 1)
		if err := wantError(err, tutti.ErrMismatch, 0, fmt.Sprintf("rank %d sends value_test.point", last), "rank 0 receives value_test.spot"); err != nil {
			return err
		}
		if m.From != last {
			return fmt.Errorf("message %+v", m)
		}
		v, _, err := value.Recv[int](ctx, c, tutti.AnyRank, 1)
		return errors.Join(err, same("the value", v, 5))
	}
	return nil
}

// TestNoValue receives a value in a slice of bytes, and bytes as a value. Both ranks fail with
// ErrMismatch.
func TestNoValue(t *testing.T) {
	text := []byte("no value")
	for name, x := range map[string]struct {
		send, receive func(ctx context.Context, c *tutti.Comm) error
	}{
		"value as bytes": {
			func(ctx context.Context, c *tutti.Comm) error { return value.Send(ctx, c, 1, text, 3) },
			func(ctx context.Context, c *tutti.Comm) error {
				_, _, err := tutti.RecvSlice[byte](ctx, c, 0, 3)
				return err
			},
		},
		"value as a buffer": {
			func(ctx context.Context, c *tutti.Comm) error { return value.Send(ctx, c, 1, text, 3) },
			func(ctx context.Context, c *tutti.Comm) error {
				_, err := c.Recv(ctx, 0, tutti.Of(make([]byte, 1000)), 3)
				return err
			},
		},
		"bytes as a value": {
			func(ctx context.Context, c *tutti.Comm) error { return c.Send(ctx, 1, tutti.Of(text), 3) },
			func(ctx context.Context, c *tutti.Comm) error {
				_, _, err := value.Recv[[]byte](ctx, c, 0, 3)
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, 2, func(ctx context.Context, c *tutti.Comm) error {
				err := error(nil)
				if c.Rank() == 0 {
					err = x.send(ctx, c)
				} else {
					err = x.receive(ctx, c)
				}
				if !errors.Is(err, tutti.ErrMismatch) || !strings.Contains(err.Error(), "a value of package value") || !strings.Contains(err.Error(), "value.Recv") {
					return fmt.Errorf("another error: %w", err)
				}
				return nil
			})
		})
	}
}

// TestMistakes checks the errors of values that cannot be encoded, and of different types.
func TestMistakes(t *testing.T) {
	for _, n := range []int{2, 3} {
		run(t, n, mistakes)
	}
}

// TestRefused checks arguments that one rank alone refuses.
func TestRefused(t *testing.T) {
	run(t, 2, func(ctx context.Context, c *tutti.Comm) error {
		x := 1
		_, nilOp := value.AllReduce(ctx, c, 1, nil)
		_, _, negative := value.Recv[int](ctx, c, 0, -1)
		_, _, noContext := value.Recv[int](nil, c, 0, 1) //nolint:staticcheck // the nil context is the case
		for _, err := range []error{
			nilOp, negative, noContext, value.Broadcast[int](ctx, c, nil, 0), value.Broadcast(ctx, c, &x, 2), value.Broadcast(ctx, c, &x, -1),
			value.Send(ctx, c, 2, x, 1),
		} {
			if err := wantError(err, tutti.ErrInvalid, c.Rank()); err != nil {
				return err
			}
		}
		return healthy(ctx, c)
	})
}

// TestUndecodable receives values that the receiver cannot decode: the next operation works.
func TestUndecodable(t *testing.T) {
	run(t, 2, func(ctx context.Context, c *tutti.Comm) error {
		if c.Rank() == 0 {
			if err := value.Send(ctx, c, 1, stubborn{}, 1); err != nil {
				return err
			}
		} else {
			_, _, err := value.Recv[stubborn](ctx, c, 0, 1)
			if !errors.Is(err, errBad) {
				return fmt.Errorf("the error is %w", err)
			}
			if err := wantError(err, tutti.ErrInvalid, 1, "from rank 0"); err != nil {
				return err
			}
		}
		return healthy(ctx, c)
	})
}

// stubborn can be encoded and not decoded.
type stubborn struct{}

func (stubborn) GobEncode() ([]byte, error) { return []byte{1}, nil }
func (*stubborn) GobDecode([]byte) error    { return errBad }

// TestUndecodableInCollectives is TestUndecodable with collectives. In AllReduce all ranks know the error.
func TestUndecodableInCollectives(t *testing.T) {
	run(t, 3, func(ctx context.Context, c *tutti.Comm) error {
		_, gathered := value.AllGather(ctx, c, stubborn{})
		_, reduced := value.AllReduce(ctx, c, stubborn{}, func(a, _ stubborn) stubborn { return a })
		x := stubborn{}
		spread := value.Broadcast(ctx, c, &x, 1)
		if c.Rank() != 1 { // the root decodes nothing
			spread = wantError(spread, tutti.ErrInvalid, c.Rank(), errBad.Error(), "from rank 1")
		}
		return errors.Join(wantError(gathered, tutti.ErrInvalid, c.Rank(), errBad.Error()),
			wantError(reduced, tutti.ErrInvalid, 0, errBad.Error()), spread, healthy(ctx, c))
	})
}

// TestPanics lets the function of AllReduce, and an encoder, panic or end their goroutine. The other
// ranks get an error, and the Comm is healthy.
func TestPanics(t *testing.T) {
	run(t, 3, func(ctx context.Context, c *tutti.Comm) error {
		var err error
		caught := catch(func() {
			_, err = value.AllReduce(ctx, c, 1, func(_, _ int) int { panic("op") })
		})
		if c.Rank() == 0 {
			err = same("the panic of op", caught, "op")
		} else {
			err = wantError(err, tutti.ErrInvalid, 0, "panicked")
		}
		if err := errors.Join(err, healthy(ctx, c)); err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() {
			defer close(ended)
			_, err := value.AllReduce(ctx, c, 1, func(_, _ int) int { runtime.Goexit(); return 0 })
			ended <- err
		}()
		if err = <-ended; c.Rank() != 0 {
			err = wantError(err, tutti.ErrInvalid, 0, "ended its goroutine")
		}
		if err := errors.Join(err, healthy(ctx, c)); err != nil {
			return err
		}
		caught = catch(func() {
			v := &loud{}
			if c.Rank() != 1 {
				v = nil
			}
			_, err = value.AllGather(ctx, c, v)
		})
		if c.Rank() == 1 {
			err = same("the panic of the encoder", caught, "loud")
		} else {
			err = wantError(err, tutti.ErrInvalid, 1, "panicked")
		}
		return errors.Join(err, healthy(ctx, c))
	})
}

// catch returns the panic of f.
func catch(f func()) (caught any) {
	defer func() { caught = recover() }()
	f()
	return nil
}

// TestCancelled ends the context of a Recv: the Comm stays healthy, and no kind of package tutti matches.
func TestCancelled(t *testing.T) {
	run(t, 2, func(ctx context.Context, c *tutti.Comm) error {
		short, cancel := context.WithCancel(ctx)
		cancel()
		_, _, err := value.Recv[int](short, c, tutti.AnyRank, 9)
		if !errors.Is(err, context.Canceled) || errors.Is(err, tutti.ErrAborted) {
			return fmt.Errorf("the error is %w", err)
		}
		return healthy(ctx, c)
	})
}

// TestTooLong sends a message that is longer than any value: Recv refuses it before it allocates memory,
// and the message waits for another receive.
func TestTooLong(t *testing.T) {
	refused, stopped := make(chan struct{}), make(chan struct{})
	run(t, 2, func(ctx context.Context, c *tutti.Comm) error {
		if c.Rank() == 0 {
			defer close(stopped)
			sending, cancel := context.WithCancel(ctx)
			go func() {
				<-refused
				cancel()
			}()
			err := c.Send(sending, 1, tutti.Of(engine.ValueBytes(make([]byte, value.MaxBytes+1000))), 1) // never written, so not in memory
			if !errors.Is(err, context.Canceled) {
				return fmt.Errorf("the message did not wait: %w", err)
			}
			return nil
		}
		defer func() {
			close(refused)
			<-stopped
			_ = c.Err() // the Send has ended the Comm, which Close would report
		}()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 2 {
			_, _, err := value.Recv[int](ctx, c, 0, 1)
			if err := errors.Join(wantError(err, tutti.ErrInvalid, 1, "limit"), c.Err()); err != nil {
				return err
			}
		}
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > value.MaxBytes+value.MaxBytes/2 { // the message itself may be in it
			return fmt.Errorf("%d bytes were allocated", grown)
		}
		return nil
	})
}
