package bench

import (
	"encoding/json"
	"math"
	"strings"
)

// An Event is a message from rank 0: one of its fields is set.
type Event struct {
	Start *Start  `json:"start,omitempty"`
	Step  *Step   `json:"step,omitempty"`
	Point *Point  `json:"point,omitempty"`
	Link  *Link   `json:"link,omitempty"`
	Done  *Finish `json:"done,omitempty"`
}

// Start is what is known before the measurement.
type Start struct {
	Engine  string   `json:"engine"`
	Ranks   int      `json:"ranks"`
	Hosts   []int    `json:"hosts"` // by rank: the lowest rank of the same host
	Names   []string `json:"names"` // by rank: the host, and its GPU if it has one
	Cores   int      `json:"cores"` // cores of the ranks of rank 0's host
	Bound   bool     `json:"bound"` // each of these ranks has its own cores
	Points  int      `json:"points"`
	InPlace bool     `json:"in_place"`
	Alloc   bool     `json:"alloc"`
	Batch   int      `json:"batch"`
	Ahead   int      `json:"ahead"`
	Machine Machine  `json:"machine"`
}

// Step says what is measured next.
type Step struct {
	What string `json:"what"`
	Pass int    `json:"pass"`
	Done int    `json:"done"`
	Of   int    `json:"of"`
}

// A Result is a line of --json. The names of its fields are stable.
type Result struct {
	Op     string  `json:"op"`
	Engine string  `json:"engine"`
	Ranks  int     `json:"ranks"`
	Bytes  int     `json:"bytes"`
	DType  string  `json:"dtype"`
	Reduce string  `json:"reduce"`
	Iters  int     `json:"iters"`
	P50    float64 `json:"p50_us"`
	P99    float64 `json:"p99_us"`
	Min    float64 `json:"min_us"`
	AlgBW  float64 `json:"algbw_gbs"`
	BusBW  float64 `json:"busbw_gbs"`
	Wrong  int     `json:"wrong"`
}

// key identifies a point.
type key struct {
	op, engine    string
	ranks, bytes  int
	dtype, reduce string
}

func (r *Result) key() key { return key{r.Op, r.Engine, r.Ranks, r.Bytes, r.DType, r.Reduce} }

// rates computes the bandwidths, and rounds the measured values to five digits.
func (r *Result) rates(o *op) {
	if r.P50 > 0 {
		r.AlgBW = float64(r.Bytes) / r.P50 / 1e3
	}
	if r.Ranks > 1 || o.name != "allreduce" {
		r.BusBW = r.AlgBW * o.bus(float64(r.Ranks))
	}
	for _, x := range []*float64{&r.P50, &r.P99, &r.Min, &r.AlgBW, &r.BusBW} {
		*x = digits(*x, 5)
	}
}

// digits rounds x to n significant digits.
func digits(x float64, n int) float64 {
	if x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return 0
	}
	scale := math.Pow(10, float64(n-1)-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}

// A Point is a result with its details.
type Point struct {
	Result Result    `json:"result"`
	Ranks  []float64 `json:"rank_p50_us"` // by rank: its own median
	Noise  float64   `json:"noise"`       // relative spread of the medians of the blocks
	Low    float64   `json:"low_us"`      // lower end of the histogram
	High   float64   `json:"high_us"`     // upper end of the histogram
	Bins   []int64   `json:"bins"`        // counts of the histogram, on a logarithmic scale
	Wrongs []Wrong   `json:"wrongs,omitempty"`
}

// A Link is one direction between two ranks.
type Link struct {
	From   int    `json:"from"`
	To     int    `json:"to"`
	Small  Result `json:"small"` // one-way time of a small message
	Large  Result `json:"large"`
	Remote bool   `json:"remote"` // the ranks are on different hosts
}

// Finish ends a run.
type Finish struct {
	Passes  int     `json:"passes"`
	Seconds float64 `json:"seconds"`
	// Outliers describes the outliers that --pairs has found.
	Outliers []string `json:"outliers,omitempty"`
}

// eventMark is the prefix of an event on a rank's standard output.
const eventMark = "tutti-bench-event "

// encode returns an event as a line.
func encode(e Event) ([]byte, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	return append(append([]byte(eventMark), text...), '\n'), nil
}

// decode reads a line. ok is false if the line is not an event.
func decode(line string) (e Event, ok bool, err error) {
	_, text, ok := strings.Cut(line, eventMark)
	if !ok {
		return e, false, nil
	}
	return e, true, json.Unmarshal([]byte(text), &e)
}
