package bench

import (
	"encoding/json"
	"os"
	"runtime"

	"github.com/tutti-go/tutti/internal/affinity"
)

// A placement is where a process runs.
type placement struct {
	Host  string
	Cores []int // that it may use; none if the system does not report it
}

// localPlacement returns this process's placement, as JSON.
func localPlacement() ([]byte, error) {
	host, _ := os.Hostname()
	return json.Marshal(placement{host, affinity.Allowed()})
}

// countCores counts the cores of the ranks on rank 0's host together, and reports
// whether these ranks are bound: there are several, and no core belongs to two of
// them. A rank that is alone on its host is not bound, whatever cores it may use.
// Where the system does not report cores, they are those of this process, not bound.
func countCores(seats []placement) (n int, bound bool) {
	var masks [][]byte
	sum := 0
	for _, s := range seats {
		if s.Host == seats[0].Host {
			masks = append(masks, affinity.Mask(s.Cores))
			sum += len(s.Cores)
		}
	}
	if n = affinity.Count(masks); n == 0 {
		return runtime.NumCPU(), false
	}
	return n, len(masks) > 1 && sum == n
}
