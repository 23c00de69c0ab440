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
// whether each rank has its own. A rank that is bound sees only its own cores.
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
