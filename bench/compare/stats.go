package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// A rankRow is one rank's results for one size: medians over the rounds. Messages,
// and operations that are timed until all ranks are done, have only rank 0.
type rankRow struct {
	Op        string   `json:"op"`
	System    string   `json:"system"`
	Bytes     int      `json:"bytes"`
	Ranks     int      `json:"ranks"`
	Transport string   `json:"transport"`
	Rank      int      `json:"rank"`
	P50       *float64 `json:"p50_us"`
	P99       *float64 `json:"p99_us"`
	P999      *float64 `json:"p999_us"`
	PerSecond *float64 `json:"per_second"`
}

// printStats prints every rank's distribution and throughput, as a table or as JSON lines. A rank
// without samples has no line.
func printStats(out io.Writer, o options, transport string, got results) error {
	var all []rankRow
	for _, bytes := range o.sizes {
		for _, system := range append([]string{"tutti"}, peerNames...) {
			for rank := range o.ranks {
				pick := func(of func(sample) float64) *float64 { return rounded(got.median(system, bytes, rank, of)) }
				r := rankRow{
					Op: o.op, System: system, Bytes: bytes, Ranks: o.ranks, Transport: transport, Rank: rank,
					P50:       pick(func(s sample) float64 { return s.p50 }),
					P99:       pick(func(s sample) float64 { return s.p99 }),
					P999:      pick(func(s sample) float64 { return s.p999 }),
					PerSecond: pick(func(s sample) float64 { return s.perSecond }),
				}
				if r.P50 != nil {
					all = append(all, r)
				}
			}
		}
	}
	if o.json {
		e := json.NewEncoder(out)
		for _, r := range all {
			if err := e.Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	fmt.Fprintf(out, "%s, %s, %d ranks on %s, times in us, medians of %d rounds\n", o.op, o.dtype, o.ranks, transport, o.rounds)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "system\tbytes\trank\tp50\tp99\tp99.9\tper second\t")
	for _, r := range all {
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t\n", r.System, r.Bytes, r.Rank, cell(r.P50), cell(r.P99), cell(r.P999), cell(r.PerSecond))
	}
	return w.Flush()
}
