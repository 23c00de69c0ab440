package gpu

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestMessageOrder lets ranks agree on the times of messages, with events in random order: the
// orders in which the ranks start the messages must be parts of one total order.
func TestMessageOrder(t *testing.T) {
	for seed := range uint64(300) {
		if err := play(rand.New(rand.NewPCG(seed, 0)), 2+int(seed%4), 40); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// play carries out possible events in random order until none is left.
func play(rnd *rand.Rand, ranks, messages int) error {
	lanes := make([]messageOrder, ranks)
	orders := make([][]uint64, ranks)
	for r := range lanes {
		lanes[r].start = func(t *transfer) { orders[r] = append(orders[r], t.number) }
	}
	var steps []func()
	add := func(f func()) { steps = append(steps, f) }
	ends := make([][2]int, messages+1)
	for number := uint64(1); number <= uint64(messages); number++ {
		from := rnd.IntN(ranks)
		to := (from + 1 + rnd.IntN(ranks-1)) % ranks
		ends[number] = [2]int{from, to}
		send, recv := &transfer{from: from, number: number}, &transfer{from: from, number: number}
		add(func() {
			proposed := lanes[to].propose(recv)
			add(func() {
				decided := lanes[from].decide(send, proposed)
				lanes[from].advance()
				add(func() {
					lanes[to].place(recv, decided)
					lanes[to].advance()
				})
			})
		})
	}
	for len(steps) > 0 {
		i := rnd.IntN(len(steps))
		do := steps[i]
		steps = slices.Delete(steps, i, i+1)
		do()
	}
	// A message is carried out when it is first on both of its ranks: none may be left.
	for done := 0; done < messages; done++ {
		next := uint64(0)
		for _, order := range orders {
			if len(order) == 0 {
				continue
			}
			e := ends[order[0]]
			if a, b := orders[e[0]], orders[e[1]]; len(a) > 0 && len(b) > 0 && a[0] == b[0] {
				next = order[0]
			}
		}
		if next == 0 {
			return fmt.Errorf("after %d messages the ranks wait for each other: %v", done, orders)
		}
		for _, r := range ends[next] {
			orders[r] = orders[r][1:]
		}
	}
	return nil
}
