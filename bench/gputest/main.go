// Command gputest tests and measures tutti on a machine with one GPU, which needs no Go
// installation. "make gpu-build" makes a folder with this program and the test binaries;
// nothing else is needed. If there is a C compiler, gputest builds a C driver and compares
// Go with it.
//
//	gputest -dir out/gpu -nccl /path/libnccl.so.2,/other/libnccl.so.2 -out summary.md
//	gputest torch -dir out/gpu    Go ranks together with PyTorch's, where it is installed
//
//	gputest short -nccl /path/libnccl.so.2 -budget 190s
//
// checks the properties that only a real GPU can show, in order of importance. It prints one
// line for each result at once, and stops when its budget is spent.
//
//	gputest shrink -nccl /path/libnccl.so.2 -rounds 5
//
// kills two of four ranks and adds two new ones, in each round, while all ranks add up on the
// device.
//
//	gputest bench -nccl /path/libnccl.so.2 -budget 120s
//
// compares tutti bench with the same loops in C, in turns, for every collective, and prints
// a table.
//
// Ranks are processes that share the GPU. To NCCL each is a host of its own. They run under
// MPS where it can be started, except when ranks are killed. The main process loads neither
// CUDA nor NCCL.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// options are the flags of gputest without a command.
type options struct {
	dir     string   // the folder of the test binaries
	nccl    []string // paths of libnccl; "": the one that is found
	ranks   string   // numbers of ranks for the tests
	rounds  int      // of measuring
	bytes   int      // of a large AllReduce
	mps     bool     // use MPS
	test    bool     // run the tests
	measure bool     // compare with C
}

// commands are the functions by the program's first argument: the processes of its jobs, and
// the commands for users.
var commands = map[string]func(args []string) error{
	"rank": serve, "comm": serveComm, "staged": serveStaged, "streams": serveStreams, "loop": serveLoop, "cycles": cycles,
	"victim": func([]string) error { return victimMain() },
	"about":  func([]string) error { return printGPU() },
	"short":  short, "shrink": shrinkMain, "bench": benchMain,
	"elastic": func([]string) error { return elastic() },
}

// main runs a command by its name, or else the tests and the measurements. The summary is printed
// and written even if something failed; the exit code is then 1. SIGINT and SIGTERM end the child
// processes by way of ctx.
func main() {
	if len(os.Args) > 1 {
		if command := commands[os.Args[1]]; command != nil {
			exit(command(os.Args[2:]))
		}
	}
	if len(os.Args) > 1 && os.Args[1] == "torch" {
		exit(torchMain(os.Args[2:]))
	}
	var o options
	var libraries, out string
	flag.StringVar(&o.dir, "dir", "", "folder with the tests' binaries; none: where this program is")
	flag.StringVar(&libraries, "nccl", os.Getenv("TUTTI_NCCL_LIBRARY"), "paths of libnccl, separated by commas; none: what is found")
	flag.StringVar(&o.ranks, "ranks", "1,2,4,8", "numbers of ranks for the tests")
	flag.IntVar(&o.rounds, "rounds", 20, "rounds of measuring, Go and C in turns")
	flag.IntVar(&o.bytes, "bytes", 256<<20, "bytes of a large AllReduce")
	flag.BoolVar(&o.mps, "mps", true, "start MPS where possible")
	flag.BoolVar(&o.test, "test", true, "run the tests")
	flag.BoolVar(&o.measure, "measure", true, "compare Go with C")
	flag.StringVar(&out, "out", "", "file for the summary; none: only print it")
	flag.Parse()
	o.nccl = strings.Split(libraries, ",")
	if o.dir == "" {
		self, err := os.Executable()
		if err != nil {
			exit(err)
		}
		o.dir = filepath.Dir(self)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var text strings.Builder
	failed := run(ctx, o, &text)
	fmt.Print(text.String())
	if out != "" {
		if err := os.WriteFile(out, []byte(text.String()), 0o644); err != nil {
			exit(err)
		}
	}
	if failed {
		os.Exit(1)
	}
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "gputest:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run tests and measures with every library and writes the summary to text. It reports whether
// anything failed. A library that fails does not end the run.
func run(ctx context.Context, o options, text *strings.Builder) (failed bool) {
	fmt.Fprintf(text, "# GPU tests\n\n%s, `gputest`\n", time.Now().UTC().Format("2006-01-02 15:04 MST"))
	for _, library := range o.nccl {
		env := []string{"TUTTI_NCCL_LIBRARY=" + library}
		what, err := describeGPU(ctx, env)
		if err != nil {
			fmt.Fprintf(text, "\n## %s\n\ncannot be used: %v\n", library, err)
			failed = true
			continue
		}
		fmt.Fprintf(text, "\n## %s\n\n", what)
		server := startMPS(ctx, o.mps)
		fmt.Fprintf(text, "MPS: %s\n\n", server)
		if o.test {
			failed = testAll(ctx, o, env, server, text) || failed
		}
		if o.measure {
			if err := measureAll(ctx, o, append(env, server.env...), text); err != nil {
				fmt.Fprintf(text, "\nmeasuring failed: %v\n", err)
				failed = true
			}
		}
		server.stop()
	}
	return failed
}

// testAll runs the test binaries and writes a row for each, with the output of failed ones below
// the table. The tests that kill ranks run without MPS: testAll stops it before them and starts it
// again at the end.
func testAll(ctx context.Context, o options, env []string, server *mps, text *strings.Builder) (failed bool) {
	env = append(env, "TUTTI_TEST_GPU=1", "TUTTI_TEST_RANKS="+o.ranks)
	text.WriteString("| tests | passed | skipped | failed | seconds |\n| --- | --- | --- | --- | --- |\n")
	var details strings.Builder
	row := func(name string, env []string, args ...string) {
		r := test(ctx, filepath.Join(o.dir, name), env, args...)
		fmt.Fprintf(text, "| %s %s | %d | %d | %d | %.1f |\n", name, strings.Join(args, " "), r.passed, r.skipped, r.failed, r.took.Seconds())
		if r.failed > 0 {
			failed = true
			fmt.Fprintf(&details, "\n%s failed:\n\n```\n%s\n```\n", name, r.tail)
		}
	}
	program := func(name string, env []string, args ...string) {
		took, out, err := runSelf(ctx, env, args...)
		outcome := [2]int{1, 0}
		if err != nil {
			failed, outcome = true, [2]int{0, 1}
			fmt.Fprintf(&details, "\n%s %s failed: %v\n\n%s\n", name, strings.Join(args, " "), err, out)
		}
		fmt.Fprintf(text, "| %s %s | %d | 0 | %d | %.1f |\n", name, strings.Join(args, " "), outcome[0], outcome[1], took.Seconds())
	}
	withMPS := append(append([]string{}, env...), server.env...)
	row("cuda.test", withMPS)
	row("nccl.test", withMPS, "-test.skip", "Lost")
	row("engine.test", withMPS, "-test.skip", "Lost")
	row("gpu.test", withMPS)
	server.stop()
	program("gputest", env, "short", fmt.Sprintf("-mps=%v", o.mps), "-only", "order,streams") // with MPS of its own
	row("nccl.test", env, "-test.run", "Lost")
	row("engine.test", env, "-test.run", "Lost")
	text.WriteString(details.String())
	server.restart(ctx)
	return failed
}
