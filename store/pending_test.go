package store

import "testing"

// TestPendingOldest checks that the oldest session of the host with the most sessions is
// evicted. The session of another host stays, although it is older.
func TestPendingOldest(t *testing.T) {
	p := newPending()
	honest := &session{host: "10.0.0.1"}
	p.add(honest)
	var flood []*session
	for range 3 {
		c := &session{host: "10.0.0.2"}
		flood = append(flood, c)
		p.add(c)
	}
	for i, want := range []*session{flood[0], flood[1], honest, flood[2], nil} {
		got := p.oldest()
		if got != want {
			t.Fatalf("eviction %d is of another session", i)
		}
		if got != nil {
			p.remove(got)
			p.remove(got) // removing twice has no effect
		}
	}
	if p.sessions.Len() != 0 || len(p.perHost) != 0 {
		t.Errorf("%d sessions of %d hosts are left", p.sessions.Len(), len(p.perHost))
	}
}
