package bench

import (
	"encoding/json"
	"os"
	"runtime"

	"github.com/tutti-go/tutti/internal/cores"
)

// A seat is where a process runs.
type seat struct {
	Host  string
	Cores []int // that it may use; none where the system does not say
}

// mySeat is this process's, as JSON.
func mySeat() ([]byte, error) {
	host, _ := os.Hostname()
	return json.Marshal(seat{host, cores.Allowed()})
}

// coresOf counts the cores that the ranks of rank 0's host have together, and tells
// whether each has its own. A rank that is bound sees only its own.
func coresOf(seats []seat) (n int, bound bool) {
	taken := map[int]bool{}
	ranks, sum := 0, 0
	for _, s := range seats {
		if s.Host != seats[0].Host {
			continue
		}
		ranks++
		sum += len(s.Cores)
		for _, core := range s.Cores {
			taken[core] = true
		}
	}
	if len(taken) == 0 {
		return runtime.NumCPU(), false
	}
	return len(taken), ranks > 1 && sum == len(taken)
}
