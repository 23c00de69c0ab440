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
	var masks [][]byte
	sum := 0
	for _, s := range seats {
		if s.Host == seats[0].Host {
			masks = append(masks, cores.Mask(s.Cores))
			sum += len(s.Cores)
		}
	}
	if n = cores.Count(masks); n == 0 {
		return runtime.NumCPU(), false
	}
	return n, len(masks) > 1 && sum == n
}
