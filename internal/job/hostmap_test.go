package job

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/tutti-go/tutti/internal/segment"
)

// TestHostMap divides ranks into hosts in rounds. In reach, a rank receives the memory of another
// rank if both have the same letter, and reads its process if both have the same digit.
func TestHostMap(t *testing.T) {
	for _, c := range []struct {
		hints, reach, digits string
		hosts                []int
		reads                []bool // by host
		rounds               int
	}{
		{"aaaa", "xxxx", "1111", []int{0, 0, 0, 0}, []bool{true, true, true, true}, 1},
		{"abab", "xyxy", "1111", []int{0, 1, 0, 1}, []bool{true, true, true, true}, 1},
		{"aaaa", "xxxx", "1112", []int{0, 0, 0, 0}, []bool{false, false, false, false}, 1},
		{"aaaa", "xxyy", "1122", []int{0, 0, 2, 2}, []bool{true, true, true, true}, 2},
		{"aaaa", "xyyy", "1222", []int{0, 1, 1, 1}, []bool{true, true, true, true}, 2},
		// In the last round rank 5's next rank was on another host, so reads stays false.
		{"aaaaaaaa", "wwxxyyzz", "11223344", []int{0, 0, 2, 2, 4, 4, 6, 7}, []bool{true, true, true, true, false, false, false, false}, 3},
		{"a.a.", "x x ", "1 1 ", []int{0, 1, 0, 3}, []bool{true, true, true, true}, 1},
		{".a..", " x  ", " 1  ", []int{0, 1, 2, 3}, []bool{true, true, true, true}, 1},
		{"aabb", "xxyy", "1123", []int{0, 0, 2, 2}, []bool{true, true, false, false}, 1},
	} {
		name := fmt.Sprint(c.hints, " ", c.reach, " ", c.digits)
		peers := make([]rankInfo, len(c.hints))
		for r, h := range c.hints {
			if h != '.' {
				peers[r].host = hostHint(string(h))
			}
		}
		d, rounds := newHostMap(peers), 0
		for more := true; more && rounds < maxHostRounds; rounds++ {
			said := make([][]byte, len(peers))
			for r := range peers {
				near := d.sameHost(r)
				said[r] = []byte{0}
				next := near[(slices.Index(near, r)+1)%len(near)]
				if d.hosts[r] < 0 && len(near) > 1 && c.reach[near[0]] != c.reach[r] {
					continue
				}
				said[r][0] = attached
				if c.digits[next] == c.digits[r] {
					said[r][0] |= readsNext
				}
			}
			var err error
			if more, err = d.applyRound(said); err != nil {
				t.Fatal(err)
			}
		}
		hosts, reads := d.result()
		if !slices.Equal(hosts, c.hosts) || rounds != c.rounds {
			t.Errorf("%s: hosts %v after %d rounds, want %v after %d", name, hosts, rounds, c.hosts, c.rounds)
		}
		for r := range peers {
			j := &Job{cfg: Config{Rank: r}, peers: peers, hosts: hosts, reads: reads}
			if got := j.processReader(nil) != nil; got != c.reads[r] && count(hosts, hosts[r]) > 1 {
				t.Errorf("%s: rank %d reads others: %v", name, r, got)
			}
		}
	}
	if _, err := newHostMap(make([]rankInfo, 2)).applyRound([][]byte{{0}, nil}); err == nil {
		t.Error("a rank said nothing")
	}
}

func count(list []int, v int) (n int) {
	for _, x := range list {
		if x == v {
			n++
		}
	}
	return n
}

// TestRankInfo checks that a rankInfo survives its encoding, that every truncated or extended encoding is an
// error, and that random bytes cause no panic.
func TestRankInfo(t *testing.T) {
	full := rankInfo{
		addrs: []string{"127.0.0.1:4000", "[fe80::1%eth0]:65535"}, network: networkHint(), host: hostHint("a"),
		listener: []byte("twelve bytes"), identity: segment.NewProcessIdentity(), cpus: []byte{3, 0, 255},
		options: map[string]string{"Config.Verify": "set", "Config.Timeout": "1m0s"},
	}
	far := rankInfo{addrs: []string{"10.0.0.1:1"}, network: networkHint(), cpus: []byte{1}}
	for _, c := range []rankInfo{full, far} {
		blob := c.encode()
		t.Logf("%d bytes", len(blob))
		got, err := decodeRankInfo(blob)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.listener) == 0 {
			got.listener = nil
		}
		if !reflect.DeepEqual(got, c) {
			t.Errorf("%+v, want %+v", got, c)
		}
		for n := range blob {
			if _, err := decodeRankInfo(blob[:n]); err == nil {
				t.Errorf("the first %d of %d bytes were a card", n, len(blob))
			}
		}
		if _, err := decodeRankInfo(append(blob, 0)); err == nil {
			t.Error("a card with a byte too many")
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 10_000 { // must not panic or allocate more than the input
		_, _ = decodeRankInfo(randomText(rnd, rnd.IntN(80)))
	}
	if a, b := hostHint(""), hostHint("a"); a == b || a == (hint{}) {
		t.Errorf("%v and %v", a, b)
	}
}

func randomText(rnd *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}
