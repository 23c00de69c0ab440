package value

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
)

// TestDescribe checks which types are the same.
func TestDescribe(t *testing.T) {
	type A struct{ X int }
	type B struct{ X int }
	type list struct {
		Next *list
		F    func()
	}
	for _, c := range []struct {
		a, b reflect.Type
		same bool
	}{
		{reflect.TypeFor[A](), reflect.TypeFor[B](), false},
		{reflect.TypeFor[int](), reflect.TypeFor[int64](), false},
		{reflect.TypeFor[any](), reflect.TypeFor[error](), false},
		{reflect.TypeFor[*A](), reflect.TypeFor[A](), false},
		{reflect.TypeFor[[3]int](), reflect.TypeFor[[4]int](), false},
		{reflect.TypeFor[map[string]A](), reflect.TypeFor[map[string]B](), false},
		{reflect.TypeFor[struct{ X int }](), reflect.TypeFor[struct{ Y int }](), false},
		{reflect.TypeFor[struct{ X int }](), reflect.TypeFor[struct{ X int32 }](), false},
		{reflect.TypeFor[struct{ X int }](), reflect.TypeFor[struct { // gob sends neither y nor C
			X int
			y int
			C chan int
		}](), true},
		{reflect.TypeFor[list](), reflect.TypeFor[list](), true},
		{reflect.TypeFor[time.Time](), reflect.TypeFor[time.Duration](), false},
	} {
		if same := fingerprint(c.a) == fingerprint(c.b); same != c.same {
			t.Errorf("%v and %v: %v; %q, %q", c.a, c.b, same, describe(c.a), describe(c.b))
		}
	}
	if got, want := describe(reflect.TypeFor[list]()), "value.list struct{Next *#0;}"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := describe(reflect.TypeFor[time.Time]()); got != "time.Time encoded" {
		t.Errorf("%q", got)
	}
}

type pair[K, V any] struct {
	Key K
	Val V
}

// TestTypeName checks that names have no paths of packages.
func TestTypeName(t *testing.T) {
	got := typeName(reflect.TypeFor[map[string]pair[tutti.Message, []pair[int, tutti.DType]]]())
	if want := "map[string]value.pair[tutti.Message,[]value.pair[int,tutti.DType]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestLimit encodes a value that is larger than the limit.
func TestLimit(t *testing.T) {
	text := strings.Repeat("x", 1000)
	if _, err := encode(nil, &text, 500); !errors.Is(err, errTooLong) {
		t.Errorf("the error is %v", err)
	}
	b, err := encode(nil, &text, 2000)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decode[string](b, 0); err != nil || got != text {
		t.Errorf("%v", err)
	}
	if _, err := decode[string](append(b, 0), 0); err == nil {
		t.Error("a byte behind the encoding was ignored")
	}
}

// TestAnnouncedLength lets rank 1 announce a value that is too long: all ranks refuse it.
func TestAnnouncedLength(t *testing.T) {
	err := tutti.RunLocal(t.Context(), 2, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		var err error
		if c.Rank() == 0 {
			_, err = AllGather(ctx, c, 1)
		} else {
			_, err = newCollective[int](ctx, c, "AllGather").exchange(MaxBytes+1, nil)
		}
		if e := (*tutti.Error)(nil); !errors.As(err, &e) || e.Rank != 1 || !errors.Is(err, tutti.ErrInvalid) {
			return fmt.Errorf("the error is %w", err)
		}
		return c.Barrier(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// FuzzMessage passes messages to the receiver. A message that it accepts holds the sent value.
func FuzzMessage(f *testing.F) {
	type T struct {
		A int
		B string
	}
	head := appendHead(nil, reflect.TypeFor[T]())
	valid, err := encode(head, &T{1, "b"}, MaxBytes)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(valid)
	f.Add(head)
	f.Add([]byte(magic))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, msg []byte) {
		hash, name, body, ok := parseHead(msg)
		if ok && (len(name) > maxName || headBytes+len(name)+len(body) != len(msg)) {
			t.Fatalf("a name of %d bytes and a body of %d, of %d", len(name), len(body), len(msg))
		}
		_, err := open[T](msg, tutti.Message{}, 0)
		if e := (*tutti.Error)(nil); err != nil && !errors.As(err, &e) {
			t.Fatalf("the error is %T", err)
		}
		if err == nil && (!ok || hash != fingerprint(reflect.TypeFor[T]())) {
			t.Fatal("accepted")
		}
	})
}

// BenchmarkSend passes values between two goroutine ranks, there and back.
func BenchmarkSend(b *testing.B) {
	type small struct{ A, B int64 }
	words := make(map[string]int)
	for i := range 10_000 {
		words[fmt.Sprint("word ", i)] = i
	}
	b.Run("struct of 16 bytes", func(b *testing.B) { benchmarkSend(b, small{1, 2}) })
	b.Run("map of 10000 words", func(b *testing.B) { benchmarkSend(b, words) })
}

func benchmarkSend[T any](b *testing.B, v T) {
	b.ReportAllocs()
	err := tutti.RunLocal(b.Context(), 2, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		for range b.N {
			if c.Rank() == 0 {
				if err := Send(ctx, c, 1, v, 0); err != nil {
					return err
				}
			}
			if _, _, err := Recv[T](ctx, c, 1-c.Rank(), 0); err != nil {
				return err
			}
			if c.Rank() == 1 {
				if err := Send(ctx, c, 0, v, 0); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkFingerprint measures what Send and Recv spend on the type.
func BenchmarkFingerprint(b *testing.B) {
	for range b.N {
		fingerprint(reflect.TypeFor[tutti.Error]())
	}
}

// BenchmarkEncode measures gob alone, without messages.
func BenchmarkEncode(b *testing.B) {
	v := struct{ A, B int64 }{1, 2}
	for range b.N {
		data, err := encode(nil, &v, MaxBytes)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := decode[struct{ A, B int64 }](data, 0); err != nil {
			b.Fatal(err)
		}
	}
}
