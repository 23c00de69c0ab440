package match

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// reference matches by scanning two lists.
type reference struct {
	receives  []*Receive
	announced []*Announcement // by number
	numbers   map[*Announcement]int
}

func fits(r *Receive, a *Announcement) bool {
	return r.Tag == a.Tag && (r.From == AnyRank || r.From == a.From)
}

func (x *reference) post(r *Receive) *Announcement {
	for i, a := range x.announced {
		if fits(r, a) {
			x.announced = slices.Delete(x.announced, i, i+1)
			return a
		}
	}
	x.receives = append(x.receives, r)
	return nil
}

func (x *reference) announce(a *Announcement) *Receive {
	for i, r := range x.receives {
		if fits(r, a) {
			x.receives = slices.Delete(x.receives, i, i+1)
			return r
		}
	}
	i, _ := slices.BinarySearchFunc(x.announced, x.numbers[a], func(o *Announcement, n int) int { return x.numbers[o] - n })
	x.announced = slices.Insert(x.announced, i, a)
	return nil
}

func remove[T comparable](list *[]T, v T) bool {
	i := slices.Index(*list, v)
	if i >= 0 {
		*list = slices.Delete(*list, i, i+1)
	}
	return i >= 0
}

// TestInbox compares an Inbox with the reference over random calls.
func TestInbox(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Inbox
		x := reference{numbers: make(map[*Announcement]int)}
		var receives []*Receive
		var announced, matched []*Announcement
		tags := rapid.IntRange(1, 200).Draw(t, "tags")
		check := func(what string, got, want any) {
			if got != want {
				t.Fatalf("%s: %v, want %v", what, got, want)
			}
		}
		for range rapid.IntRange(0, 300).Draw(t, "calls") {
			from, tag := rapid.IntRange(0, 3).Draw(t, "from"), rapid.IntRange(1, tags).Draw(t, "tag")
			switch rapid.IntRange(0, 9).Draw(t, "call") {
			case 0, 1, 2, 3:
				r := &Receive{From: from - 1, Tag: tag}
				receives = append(receives, r)
				a := b.Post(r)
				check("Post", a, x.post(r))
				if a != nil {
					matched = append(matched, a)
				}
			case 4, 5, 6:
				if first := b.First(from, tag); first != nil && !fits(first, &Announcement{From: from, Tag: tag}) {
					t.Fatalf("First: %v", first)
				}
				a := &Announcement{From: from, Tag: tag}
				announced = append(announced, a)
				x.numbers[a] = len(announced)
				check("Announce", b.Announce(a), x.announce(a))
			case 7:
				if len(matched) > 0 {
					i := rapid.IntRange(0, len(matched)-1).Draw(t, "matched")
					a := matched[i]
					matched = slices.Delete(matched, i, i+1)
					check("Return", b.Return(a), x.announce(a))
				}
			case 8:
				if len(receives) > 0 {
					r := rapid.SampledFrom(receives).Draw(t, "receive")
					check("Cancel", b.Cancel(r), remove(&x.receives, r))
				}
			case 9:
				if len(announced) > 0 {
					a := rapid.SampledFrom(announced).Draw(t, "announcement")
					check("Withdraw", b.Withdraw(a), remove(&x.announced, a))
				}
			}
		}
		n := 0
		b.EachReceive(func(*Receive) { n++ })
		check("receives", n, len(x.receives))
		n = 0
		b.EachAnnouncement(func(*Announcement) { n++ })
		check("announcements", n, len(x.announced))
	})
}

// TestLanes checks that an Inbox does not keep a lane for each tag that was ever used.
func TestLanes(t *testing.T) {
	for _, from := range []int{1, AnyRank} {
		var b Inbox
		for tag := range 10_000 {
			r, a := &Receive{From: from, Tag: tag}, &Announcement{From: 1, Tag: tag}
			if b.Post(r) != nil || b.Announce(a) != r {
				t.Fatal("not matched")
			}
		}
		if n := len(b.lanes); n > 2*keepLanes {
			t.Errorf("%d lanes of receives from %d", n, from)
		}
	}
}

// TestFirstLanes checks that First keeps no lane for each tag that it was called with.
func TestFirstLanes(t *testing.T) {
	var b Inbox
	for tag := range 10_000 {
		r := &Receive{From: AnyRank, Tag: tag}
		if b.First(1, tag) != nil || b.Post(r) != nil || b.First(1, tag) != r || b.Take(2, tag) != r {
			t.Fatal("wrong receive")
		}
	}
	if n := len(b.lanes); n > 2*keepLanes {
		t.Errorf("%d lanes", n)
	}
}

// TestReuse checks that a receive and an announcement can be used again without an allocation.
func TestReuse(t *testing.T) {
	var b Inbox
	r, a := &Receive{From: 1, Tag: 1}, &Announcement{From: 1, Tag: 1}
	if n := testing.AllocsPerRun(100, func() {
		b.Post(r)
		if b.Announce(a) != r {
			t.Fatal("not matched")
		}
	}); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

func ExampleInbox() {
	var b Inbox
	b.Announce(&Announcement{From: 2, Tag: 7})
	b.Announce(&Announcement{From: 1, Tag: 7})
	fmt.Println(b.Post(&Receive{From: 1, Tag: 7}).From)
	fmt.Println(b.Post(&Receive{From: AnyRank, Tag: 7}).From)
	// Output:
	// 1
	// 2
}
