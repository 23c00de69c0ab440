package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// enqueue compares what it takes to start small operations, through a Comm and in C.
func (s *shortRun) enqueue(ctx context.Context) error {
	j, err := s.comm(ctx)
	if err != nil {
		return err
	}
	jobs, end, err := s.drivers(ctx, s.driver, s.driver)
	if err != nil {
		return err
	}
	defer end()
	jobs = append([]*job{j}, jobs...)
	lines := 3 // to come, each of which has its share of the time
	line := func(what, mine, theirs string, most float64) error {
		within, cancel := share(ctx, 1, lines)
		defer cancel()
		lines--
		all, err := inTurns(within, s.rounds, jobs, []string{mine, theirs, theirs})
		if err == nil {
			s.beyond(what, all, most)
		}
		return err
	}
	return errors.Join(
		line("1 KiB through a Comm in a stream's order, to enqueue (64 at a time)", "ordered 3", "ordered 3", 2),
		line("1 KiB through a Comm in a stream's order, until done (no bound)", "through 3", "through 3", 1e9),
		line("1 KiB through a Comm, one at a time (no bound)", "calls 50", "whole 1024 50", 1e9),
	)
}

// bare compares what it takes to start small operations by package nccl and in C. It
// also tells what C takes with the context pushed and popped around each call, as
// package nccl does it, and with a look at which one is current.
func (s *shortRun) bare(ctx context.Context) error {
	names := []string{s.self, s.driver, s.driver}
	if s.beside != "" {
		names = append(names, s.beside)
	}
	jobs, end, err := s.drivers(ctx, names...)
	if err != nil {
		return err
	}
	defer end()
	lines := 2
	line := func(what, question string, others ...question) error {
		within, cancel := share(ctx, 1, lines)
		defer cancel()
		lines--
		of := []*job{jobs[0], jobs[1], jobs[2]}
		questions := []string{question, question, question}
		for _, o := range others {
			of, questions = append(of, jobs[1]), append(questions, o.text)
		}
		if s.beside != "" {
			of, questions = append(of, jobs[3]), append(questions, question)
		}
		all, err := inTurns(within, 3*s.rounds, of, questions)
		if err != nil {
			return err
		}
		s.beyond(what, all[:3], 0.5)
		for i, o := range others {
			s.say(what+", "+o.name+", beside the same C", true, "%s", beyond(all[3+i], all[1]))
		}
		if s.beside != "" {
			s.say(what+", "+filepath.Base(s.beside)+", beside the same C", true, "%s", beyond(all[len(all)-1], all[1]))
		}
		return nil
	}
	return errors.Join(
		line("1 KiB by package nccl, to enqueue", "burst 5",
			question{"C that pushes and pops the context", "pushed 5"}, question{"C that asks for the context", "asked 5"}),
		line("1 KiB by package nccl with events, to enqueue", "ordered 5"),
	)
}

// drivers starts two ranks of each of the programs, which is a C driver or a gputest.
func (s *shortRun) drivers(ctx context.Context, programs ...string) (jobs []*job, end func(), err error) {
	if s.driver == "" {
		return nil, nil, errNoCompiler
	}
	end = func() {
		for _, j := range jobs {
			j.kill(5 * time.Second)
		}
	}
	// They need little memory for this.
	env := append(append([]string{}, s.env...), append(s.server.env, "TUTTI_BENCH_BYTES=1048576")...)
	for _, p := range programs {
		command := []string{p}
		if p != s.driver {
			command = append(command, "rank")
		}
		j, err := startJob(ctx, p, 2, env, command...)
		if err != nil {
			end()
			return nil, nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, end, nil
}

// beyond says how much more than C, and C once more, Go takes, and judges it: by so
// many microseconds at most.
func (s *shortRun) beyond(what string, all []series, most float64) {
	took, c, again := all[0].at(0.5), all[1].at(0.5), all[2].at(0.5)
	s.say(what, took-c <= most || took <= again, "Go %s; C again %.2f", beyond(all[0], all[1]), again)
}

// beyond compares a series with C's.
func beyond(mine, c series) string {
	return fmt.Sprintf("%.2f us (%.2f, %.2f), C %.2f (%.2f, %.2f): %+.2f us (%d rounds)", mine.at(0.5), mine.at(0.1), mine.at(0.9),
		c.at(0.5), c.at(0.1), c.at(0.9), mine.at(0.5)-c.at(0.5), len(mine))
}
