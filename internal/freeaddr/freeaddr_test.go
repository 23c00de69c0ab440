package freeaddr

import (
	"net"
	"testing"
)

// TestReserve makes reservations, which have different addresses, and listens on them.
func TestReserve(t *testing.T) {
	seen := make(map[string]bool)
	for range 50 {
		r, err := Reserve()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Release()
		if seen[r.Addr] {
			t.Errorf("%s is reserved twice", r.Addr)
		}
		seen[r.Addr] = true
		l, err := net.Listen("tcp", r.Addr)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}
