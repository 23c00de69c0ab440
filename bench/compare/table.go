package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"text/tabwriter"
)

// A row is one size on one transport. Times are in microseconds; null means not
// measured.
type row struct {
	Op        string   `json:"op"`
	Bytes     int      `json:"bytes"`
	Ranks     int      `json:"ranks"`
	Transport string   `json:"transport"`
	DType     string   `json:"dtype"`
	Tutti     *float64 `json:"tutti_us"`
	OpenMPI   *float64 `json:"openmpi_us"`
	MPICH     *float64 `json:"mpich_us"`
	Gloo      *float64 `json:"gloo_us"`
	Floor     *float64 `json:"floor_us"`
	RatioBest *float64 `json:"ratio_best"` // tutti's time over the fastest peer's
	// With --other only.
	Other      *float64 `json:"other_us,omitempty"`
	RatioOther *float64 `json:"ratio_other,omitempty"` // tutti's time over the other build's
}

// rows returns the table of one transport, with a row for each size. A system without samples of a
// size has nil.
func rows(o options, transport string, got results) []row {
	var all []row
	for _, bytes := range o.sizes {
		pick := func(s sample) float64 { return s.p50 }
		p50 := func(system string) *float64 { return rounded(got.median(system, bytes, 0, pick)) }
		r := row{
			Op: o.op, Bytes: bytes, Ranks: o.ranks, Transport: transport, DType: o.dtype,
			Tutti: p50("tutti"), OpenMPI: p50("openmpi"), MPICH: p50("mpich"), Gloo: p50("gloo"),
			Other: p50("other"),
		}
		// The threads of the floor only spin, so other load harms it most. The
		// quietest round counts.
		if floor := got.sorted("floor", bytes, 0, pick); len(floor) > 0 {
			r.Floor = rounded(&floor[0])
		}
		best := math.Inf(1)
		for _, t := range []*float64{r.OpenMPI, r.MPICH, r.Gloo} {
			if t != nil {
				best = min(best, *t)
			}
		}
		if r.Tutti != nil && !math.IsInf(best, 1) && best > 0 {
			ratio := *r.Tutti / best
			r.RatioBest = rounded(&ratio)
		}
		if r.Tutti != nil && r.Other != nil && *r.Other > 0 {
			ratio := *r.Tutti / *r.Other
			r.RatioOther = rounded(&ratio)
		}
		all = append(all, r)
	}
	return all
}

// rounded rounds to five decimal places: a time per message may be few nanoseconds.
func rounded(x *float64) *float64 {
	if x == nil {
		return nil
	}
	y := math.Round(*x*1e5) / 1e5
	return &y
}

func printJSON(out io.Writer, all []row) error {
	e := json.NewEncoder(out)
	for _, r := range all {
		if err := e.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// printTable writes the rows as an aligned table, with the columns of --other if it is set.
func printTable(out io.Writer, o options, transport string, all []row) error {
	fmt.Fprintf(out, "%s, %s, %d ranks on %s, p50 in us, median of %d rounds\n", o.op, o.dtype, o.ranks, transport, o.rounds)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	head, line := "", ""
	if o.other != "" {
		head = "other\ttutti/other\t"
	}
	fmt.Fprintln(w, "bytes\ttutti\topenmpi\tmpich\tgloo\tfloor\ttutti/best\t"+head)
	for _, r := range all {
		if o.other != "" {
			line = cell(r.Other) + "\t" + cell(r.RatioOther) + "\t"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Bytes,
			cell(r.Tutti), cell(r.OpenMPI), cell(r.MPICH), cell(r.Gloo), cell(r.Floor), cell(r.RatioBest), line)
	}
	return w.Flush()
}

// cell formats two or three significant digits, or a dash.
func cell(x *float64) string {
	switch {
	case x == nil:
		return "-"
	case *x >= 100:
		return fmt.Sprintf("%.0f", *x)
	case *x >= 10:
		return fmt.Sprintf("%.1f", *x)
	case *x < 0.1:
		return fmt.Sprintf("%.4f", *x)
	}
	return fmt.Sprintf("%.2f", *x)
}
