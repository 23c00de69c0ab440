package sim

// An event is something that happens at a virtual time. Events of one time happen
// in the order in which they were scheduled.
type event struct {
	at     int64
	number uint64
	do     func()
}

func (e *event) before(o *event) bool {
	return e.at < o.at || e.at == o.at && e.number < o.number
}

// A heap returns events in order.
type heap []event

func (h *heap) push(e event) {
	*h = append(*h, e)
	s := *h
	i := len(s) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !s[i].before(&s[up]) {
			break
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
}

// pop removes and returns the first event. The heap must not be empty.
func (h *heap) pop() event {
	s := *h
	first := s[0]
	last := len(s) - 1
	s[0] = s[last]
	s[last] = event{}
	s = s[:last]
	*h = s
	for i := 0; ; {
		next := 2*i + 1
		if next >= last {
			break
		}
		if next+1 < last && s[next+1].before(&s[next]) {
			next++
		}
		if !s[next].before(&s[i]) {
			break
		}
		s[i], s[next] = s[next], s[i]
		i = next
	}
	return first
}
