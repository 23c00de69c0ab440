package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
)

// A series is a list of times of one job, one for each round.
type series []float64

// at returns a quantile, interpolated between two neighbouring values.
func (s series) at(q float64) float64 {
	sorted := slices.Sorted(slices.Values(s))
	if len(sorted) == 0 {
		return 0
	}
	place := q * float64(len(sorted)-1)
	i := min(int(place), max(len(sorted)-2, 0))
	return sorted[i] + (place-float64(i))*(sorted[min(i+1, len(sorted)-1)]-sorted[i])
}

// measureAll times Go, C, and C again, in turns, with 2 and 4 ranks, and writes a table. The
// difference between the two C jobs is the measurement's uncertainty. With 4 ranks it times
// only the large AllReduce.
func measureAll(ctx context.Context, o options, env []string, text *strings.Builder) error {
	dir, err := os.MkdirTemp("", "gputest")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	driver, err := compile(ctx, dir)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	env = append(env, fmt.Sprintf("TUTTI_BENCH_BYTES=%d", o.bytes))
	fmt.Fprintf(text, "\nAllReduce, float32, sum; medians of %d rounds in turns, in microseconds (10%% and 90%% in brackets).\n\n", o.rounds)
	text.WriteString("| ranks | what | Go | C | C again | Go - C | Go / C |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, ranks := range []int{2, 4} {
		large := question{fmt.Sprintf("%d MiB, whole", o.bytes>>20), fmt.Sprintf("whole %d 3", o.bytes)}
		questions := []question{{"1 KiB, to enqueue", "burst 10"}, {"1 KiB with events, to enqueue", "ordered 10"}, large}
		if ranks > 2 {
			questions = questions[2:]
		}
		if err := compare(ctx, o, ranks, env, []string{self, "rank"}, []string{driver}, questions, text); err != nil {
			return err
		}
	}
	return nil
}

// A question is the text sent to a job, and its name in the table.
type question struct{ name, text string }

// compare starts a job each for Go, C, and C again, asks them every question in turns, and writes a
// row for each question. The first error ends it; the jobs are stopped in any case.
func compare(ctx context.Context, o options, ranks int, env, goRank, cRank []string, questions []question, text *strings.Builder) error {
	var jobs []*job
	defer func() {
		for _, j := range jobs {
			j.stop()
		}
	}()
	for _, d := range []struct {
		name   string
		driver []string
	}{{"Go", goRank}, {"C", cRank}, {"C again", cRank}} {
		j, err := startJob(ctx, d.name, ranks, env, d.driver...)
		if err != nil {
			return err
		}
		jobs = append(jobs, j)
	}
	for _, q := range questions {
		all := make([]series, len(jobs))
		for round := range o.rounds + 1 {
			for i := range jobs {
				k := (i + round) % len(jobs) // each job is first in turn
				numbers, err := jobs[k].ask(ctx, q.text)
				if err != nil {
					return err
				}
				if round > 0 { // the first round warms up
					all[k] = append(all[k], series(numbers).at(0.5)/1000)
				}
			}
		}
		fmt.Fprintf(text, "| %d | %s", ranks, q.name)
		for _, s := range all {
			fmt.Fprintf(text, " | %.2f (%.2f, %.2f)", s.at(0.5), s.at(0.1), s.at(0.9))
		}
		fmt.Fprintf(text, " | %+.2f | %.3f |\n", all[0].at(0.5)-all[1].at(0.5), all[0].at(0.5)/all[1].at(0.5))
	}
	return nil
}
