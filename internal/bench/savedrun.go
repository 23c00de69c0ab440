package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
)

// A SavedRun is a run that was saved.
type SavedRun struct {
	Name    string
	Results []Result
	index   map[key]*Result
}

// The tags around the run in a page.
const (
	dataOpen  = `<script type="application/json" id="tutti-bench">`
	dataClose = `</script>`
)

// ReadSaved reads the saved output of --json, or a page. A file without results, or with a line
// that is no result, is an error.
func ReadSaved(path string) (*SavedRun, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	old := &SavedRun{Name: path, index: map[key]*Result{}}
	if _, rest, ok := bytes.Cut(text, []byte(dataOpen)); ok {
		data, _, _ := bytes.Cut(rest, []byte(dataClose))
		var run pageData
		if err := json.Unmarshal(data, &run); err != nil {
			return nil, fmt.Errorf("%s: the page holds no run: %w", path, err)
		}
		for i := range run.Points {
			old.Results = append(old.Results, run.Points[i].Result)
		}
	} else {
		n := 0
		for line := range bytes.Lines(text) {
			n++
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			var r Result
			if err := json.Unmarshal(line, &r); err != nil || r.Op == "" {
				return nil, fmt.Errorf("%s:%d: this is no line of tutti bench --json", path, n)
			}
			old.Results = append(old.Results, r)
		}
	}
	if len(old.Results) == 0 {
		return nil, fmt.Errorf("%s holds no results", path)
	}
	for i := range old.Results {
		old.index[old.Results[i].key()] = &old.Results[i]
	}
	return old, nil
}

// The least relative changes of the median and of the best time that count as a
// change.
const (
	minChange = 0.10
	minBest   = 0.05
)

// A Change is how a point has changed.
type Change struct {
	Known  bool
	P50    float64 // relative; positive: slower
	Beyond bool    // beyond the noise
}

// String returns the text for the table; a star marks changes beyond the noise.
func (c Change) String() string {
	if !c.Known {
		return "new"
	}
	mark := ""
	if c.Beyond {
		mark = " *"
	}
	return fmt.Sprintf("%+.0f%%%s", 100*c.P50, mark)
}

// Compare compares a point with the saved one. A change is beyond the noise if the
// median has changed by a tenth and by more than its noise within the run, and the
// best time has changed in the same direction.
func (old *SavedRun) Compare(p *Point) Change {
	was := old.index[p.Result.key()]
	if was == nil || was.P50 <= 0 || p.Result.P50 <= 0 {
		return Change{}
	}
	c := Change{Known: true, P50: p.Result.P50/was.P50 - 1}
	best := p.Result.Min/max(was.Min, 1e-9) - 1
	c.Beyond = math.Abs(c.P50) > max(minChange, p.Noise) && math.Abs(best) > minBest && (best > 0) == (c.P50 > 0)
	return c
}

// summary is one sentence about all points.
func (old *SavedRun) summary(points []Point) string {
	slower, faster, known := 0, 0, 0
	for i := range points {
		c := old.Compare(&points[i])
		switch {
		case c.Beyond && c.P50 > 0:
			slower++
		case c.Beyond:
			faster++
		}
		if c.Known {
			known++
		}
	}
	if known == 0 {
		return "no point in common (the same operation, engine, ranks, size, type and reduction)"
	}
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{slower, "slower"}, {faster, "faster"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if parts == nil {
		return fmt.Sprintf("none of %s differs beyond the noise", counted(known, "point"))
	}
	return fmt.Sprintf("%s beyond the noise (*), of %s", strings.Join(parts, " and "), counted(known, "point"))
}
