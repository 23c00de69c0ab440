package fifo

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestQueue compares a Queue with a plain slice.
func TestQueue(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var q Queue[int]
	var want []int
	for i := range 10000 {
		switch rnd.IntN(5) {
		case 0, 1, 2:
			q.Push(i)
			want = append(want, i)
		case 3:
			v, ok := q.Pop()
			if ok != (len(want) > 0) || ok && v != want[0] {
				t.Fatalf("step %d: Pop returned %d, %v, want %v", i, v, ok, want)
			}
			if ok {
				want = want[1:]
			}
		case 4:
			n := rnd.IntN(min(len(want), 4) + 1)
			q.Drop(n)
			want = want[n:]
		}
		first, ok := q.First()
		if q.Len() != len(want) || q.Empty() == ok || ok && first != want[0] || !slices.Equal(q.All(), want) {
			t.Fatalf("step %d: the queue holds %v, want %v", i, q.All(), want)
		}
	}
}

// TestQueueKeepsMemory checks that a warm Queue does not allocate.
func TestQueueKeepsMemory(t *testing.T) {
	var q Queue[*int]
	v := new(int)
	cycle := func() {
		for range 10 {
			q.Push(v)
		}
		for !q.Empty() {
			q.Pop()
		}
	}
	cycle()
	if n := testing.AllocsPerRun(100, cycle); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
