package match

// A node is an element of a list. It belongs to the value that contains it.
type node[T any] struct {
	prev, next *node[T]
	value      T
}

// A list is a doubly linked list of nodes. The zero list is empty.
type list[T any] struct{ first, last *node[T] }

// insert inserts n before next, or at the end if next is nil.
func (l *list[T]) insert(n, next *node[T]) {
	n.next, n.prev = next, l.last
	if next != nil {
		n.prev = next.prev
		next.prev = n
	} else {
		l.last = n
	}
	if n.prev != nil {
		n.prev.next = n
	} else {
		l.first = n
	}
}

// remove removes n, which is in the list.
func (l *list[T]) remove(n *node[T]) {
	if n.prev != nil {
		n.prev.next = n.next
	} else {
		l.first = n.next
	}
	if n.next != nil {
		n.next.prev = n.prev
	} else {
		l.last = n.prev
	}
	n.prev, n.next = nil, nil
}
