package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/internal/freeaddr"
)

// probe prints the path of the libnccl that PyTorch has loaded, which the Go ranks must load
// too, and PyTorch's version.
const probe = `
import torch
assert torch.cuda.is_available(), "PyTorch has no GPU"
print(next(l.split()[-1] for l in open("/proc/self/maps") if "libnccl" in l))
print("PyTorch", torch.__version__ + ", NCCL", ".".join(map(str, torch.cuda.nccl.version())))
`

// torchOptions are the flags of "gputest torch".
type torchOptions struct {
	dir         string
	mib, rounds int // MiB of weights; rounds of sending them
	turns       int // of each receiver
	mps         bool
}

// torchMain tests Go ranks together with PyTorch's. It compares the time to send weights from
// Python to Go with that from Python to Python.
func torchMain(args []string) error {
	var o torchOptions
	f := flag.NewFlagSet("gputest torch", flag.ExitOnError)
	f.StringVar(&o.dir, "dir", ".", "folder with torch.test, weightsync and weights.py")
	f.IntVar(&o.mib, "mib", 1024, "MiB of weights")
	f.IntVar(&o.rounds, "rounds", 3, "rounds of sending them, for each receiver and turn")
	f.IntVar(&o.turns, "turns", 6, "turns of each receiver: a group's rate depends on how its connections fall out")
	f.BoolVar(&o.mps, "mps", true, "start MPS where possible")
	_ = f.Parse(args)               // exits on an error
	dir, err := filepath.Abs(o.dir) // exec would search PATH for a bare name
	if err != nil {
		return err
	}
	o.dir = dir
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var text strings.Builder
	err = withPyTorch(ctx, o, &text)
	fmt.Print(text.String())
	return err
}

// withPyTorch runs the tests with mixed groups and sends the weights, and writes both to text. A
// failed test does not keep the weights from being sent. It returns an error at once if PyTorch
// cannot be used.
func withPyTorch(ctx context.Context, o torchOptions, text *strings.Builder) error {
	out, err := exec.CommandContext(ctx, "python3", "-c", probe).Output()
	library, about, ok := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil || !ok {
		return fmt.Errorf("PyTorch cannot be used here: %w %s", err, stderrOf(err))
	}
	server := startMPS(ctx, o.mps)
	defer server.stop()
	fmt.Fprintf(text, "# With PyTorch\n\n%s, `gputest torch`: %s (%s), MPS: %s\n\n", time.Now().UTC().Format("2006-01-02 15:04 MST"), about, library, server)
	env := append([]string{"TUTTI_NCCL_LIBRARY=" + library, "TUTTI_TEST_GPU=1"}, server.env...)

	text.WriteString("| 2 Go and 2 Python ranks | result | seconds |\n| --- | --- | --- |\n")
	r := test(ctx, filepath.Join(o.dir, "torch.test"), env, "-test.run", "PyTorch")
	rows := groupRows(r.tail)
	text.WriteString(strings.Join(rows, ""))
	var failures []error
	if r.failed > 0 || len(rows) == 0 {
		fmt.Fprintf(text, "\n```\n%s\n```\n", r.tail)
		failures = append(failures, errors.New("the mixed group failed"))
	}
	said, err := weights(ctx, o, env)
	fmt.Fprintf(text, "\n%d MiB of weights, %d rounds, %d turns each:\n\n```\n%s\n```\n", o.mib, o.rounds, o.turns, strings.TrimSpace(said))
	return errors.Join(append(failures, err)...)
}

func stderrOf(err error) string {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return strings.TrimSpace(string(e.Stderr))
	}
	return ""
}

var groupLine = regexp.MustCompile(`--- (PASS|FAIL|SKIP): TestPyTorch/(\S+) \(([0-9.]+)s\)`)

// groupRows converts the tests' output to rows of a table.
func groupRows(out string) (rows []string) {
	words := map[string]string{"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}
	for _, m := range groupLine.FindAllStringSubmatch(out, -1) {
		rows = append(rows, fmt.Sprintf("| %s | %s | %s |\n", strings.ReplaceAll(m[2], "_", " "), words[m[1]], m[3]))
	}
	return rows
}

// weights runs the three processes of examples/weightsync at once, and returns the sender's and the
// Go receiver's output. The two receivers get the weights in turns. A goroutine waits for each
// process and writes only its own element of outs and errs. The first process that fails ends the
// others by cancel; weights then returns all output and the errors.
func weights(ctx context.Context, o torchOptions, env []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	var stores, toGo, toPython []string
	for i := range 2 * o.turns {
		s, err := freeaddr.Reserve()
		if err != nil {
			return "", err
		}
		defer s.Release()
		stores = append(stores, s.Addr)
		if i%2 == 0 {
			toGo = append(toGo, s.Addr)
		} else {
			toPython = append(toPython, s.Addr)
		}
	}
	script := filepath.Join(o.dir, "weights.py")
	commands := [][]string{
		{"python3", script, "send", "--store", strings.Join(stores, ","), "--mib", fmt.Sprint(o.mib), "--rounds", fmt.Sprint(o.rounds)},
		{filepath.Join(o.dir, "weightsync"), "-once", "-store", strings.Join(toGo, ",")},
		{"python3", script, "receive", "--store", strings.Join(toPython, ",")},
	}
	outs, errs := make([]bytes.Buffer, len(commands)), make([]error, len(commands))
	var all sync.WaitGroup
	for i, c := range commands {
		cmd := exec.CommandContext(ctx, c[0], c[1:]...)
		cmd.Env = append(append(os.Environ(), env...), fmt.Sprintf("NCCL_HOSTID=tutti-weights-%d", i))
		cmd.Stdout, cmd.Stderr = &outs[i], &outs[i]
		all.Go(func() {
			if errs[i] = cmd.Run(); errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w", filepath.Base(c[0]), errs[i])
				cancel() // the other processes wait for it
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Sprintf("%s\n%s\n%s", &outs[0], &outs[1], &outs[2]), err
	}
	return outs[0].String() + "as Go saw it:\n" + outs[1].String(), nil
}
