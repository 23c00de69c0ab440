package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// enqueue compares the host's time to start small operations through a Comm with C. Each line of
// the table has an equal share of the time that ctx leaves. A line that fails does not end the
// others.
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
	lines := 3 // still to be measured; each has its share of the time
	line := func(what, mine, theirs string, most float64) error {
		within, cancel := share(ctx, 1, lines)
		defer cancel()
		lines--
		all, err := inTurns(within, s.rounds, jobs, []string{mine, theirs, theirs})
		if err == nil {
			s.judge(what, all, most)
		}
		return err
	}
	return errors.Join(
		line("1 KiB through a Comm in a stream's order, to enqueue (64 at a time)", "ordered 3", "ordered 3", 2),
		line("1 KiB through a Comm in a stream's order, until done (no bound)", "through 3", "through 3", 1e9),
		line("1 KiB through a Comm, one at a time (no bound)", "calls 50", "whole 1024 50", 1e9),
	)
}

// bareNCCL compares the host's time to start small operations with package nccl and in C. It also
// measures C with the context pushed and popped around each call, as package nccl does it,
// and C that queries the current context before each call.
func (s *shortRun) bareNCCL(ctx context.Context) error {
	names := []string{s.self, s.driver, s.driver}
	if s.otherProgram != "" {
		names = append(names, s.otherProgram)
	}
	jobs, end, err := s.drivers(ctx, names...)
	if err != nil {
		return err
	}
	defer end()
	lines := 2 // still to be measured; each has its share of the time
	// line asks Go, C and C again the same question, in turns, and prints a row. C also
	// answers the questions of others, each for a row of its own.
	line := func(what, question string, others ...question) error {
		within, cancel := share(ctx, 1, lines)
		defer cancel()
		lines--
		of := []*job{jobs[0], jobs[1], jobs[2]}
		questions := []string{question, question, question}
		for _, o := range others {
			of, questions = append(of, jobs[1]), append(questions, o.text)
		}
		if s.otherProgram != "" {
			of, questions = append(of, jobs[3]), append(questions, question)
		}
		all, err := inTurns(within, 3*s.rounds, of, questions)
		if err != nil {
			return err
		}
		s.judge(what, all[:3], 0.5)
		for i, o := range others {
			s.say(what+", "+o.name+", compared with the same C", true, "%s", compareWithC(all[3+i], all[1]))
		}
		if s.otherProgram != "" {
			s.say(what+", "+filepath.Base(s.otherProgram)+", compared with the same C", true, "%s", compareWithC(all[len(all)-1], all[1]))
		}
		return nil
	}
	return errors.Join(
		line("1 KiB by package nccl, to enqueue", "burst 5",
			question{"C that pushes and pops the context", "pushed 5"}, question{"C that asks for the context", "asked 5"}),
		line("1 KiB by package nccl with events, to enqueue", "ordered 5"),
	)
}

// drivers starts a job of two ranks of each program, which is the C driver or a gputest. The caller
// calls end to stop them. After an error none is left.
func (s *shortRun) drivers(ctx context.Context, programs ...string) (jobs []*job, end func(), err error) {
	if s.driver == "" {
		return nil, nil, errNoCompiler
	}
	end = func() {
		for _, j := range jobs {
			j.kill(5 * time.Second)
		}
	}
	// These jobs need little memory.
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

// judge prints the comparison of Go with C, and with C again. The verdict is ok if Go takes no
// longer than C and the given number of microseconds, or no longer than C again.
func (s *shortRun) judge(what string, all []series, most float64) {
	took, c, again := all[0].at(0.5), all[1].at(0.5), all[2].at(0.5)
	s.say(what, took-c <= most || took <= again, "Go %s; C again %.2f", compareWithC(all[0], all[1]), again)
}

// compareWithC formats the comparison of a series with C's.
func compareWithC(mine, c series) string {
	return fmt.Sprintf("%.2f us (%.2f, %.2f), C %.2f (%.2f, %.2f): %+.2f us (%d rounds)", mine.at(0.5), mine.at(0.1), mine.at(0.9),
		c.at(0.5), c.at(0.1), c.at(0.9), mine.at(0.5)-c.at(0.5), len(mine))
}
