// Package fifo is a queue that reuses its memory.
package fifo

// A Queue holds values in the order in which they were pushed. The zero Queue is empty and ready
// to use. It is not safe for concurrent use.
type Queue[T any] struct {
	list []T
	head int // index of the first value in list
}

// Len returns the number of values.
func (q *Queue[T]) Len() int { return len(q.list) - q.head }

// Empty reports whether the queue holds no value.
func (q *Queue[T]) Empty() bool { return q.head == len(q.list) }

// All returns the values in order. The slice is valid until the next Push or Drop.
func (q *Queue[T]) All() []T { return q.list[q.head:] }

// Push appends a value.
func (q *Queue[T]) Push(v T) {
	if len(q.list) == cap(q.list) && q.head > len(q.list)/2 {
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	q.list = append(q.list, v)
}

// First returns the first value. It reports false if the queue is empty.
func (q *Queue[T]) First() (v T, ok bool) {
	if q.Empty() {
		return v, false
	}
	return q.list[q.head], true
}

// Pop removes the first value and returns it. It reports false if the queue is empty.
func (q *Queue[T]) Pop() (v T, ok bool) {
	if v, ok = q.First(); ok {
		q.Drop(1)
	}
	return v, ok
}

// Drop removes the first n values.
func (q *Queue[T]) Drop(n int) {
	clear(q.list[q.head : q.head+n])
	if q.head += n; q.head == len(q.list) {
		q.list, q.head = q.list[:0], 0
	}
}
