package tutti_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

var update = flag.Bool("update", false, "rewrite testdata/errors.golden")

const errorTextsFile = "testdata/errors.golden"

// TestErrorTexts compares every error text that a user can see with a golden file. Texts of
// failures are made by provoking or building them. All other texts are read from the source.
func TestErrorTexts(t *testing.T) {
	var b strings.Builder
	section := func(name string, lines []string) {
		fmt.Fprintf(&b, "== %s\n", name)
		for _, l := range lines {
			fmt.Fprintln(&b, l)
		}
		fmt.Fprintln(&b)
	}
	section("invalid arguments", invalidTexts())
	section("failures", failureTexts())
	section("failures of ranks in one process", localTexts(t))
	section("formats in the source", sourceTexts(t))
	if *update {
		if err := os.WriteFile(errorTextsFile, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(errorTextsFile)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(b.String(), "\n"); !slices.Equal(got, strings.Split(string(want), "\n")) {
		old := strings.Split(string(want), "\n")
		for _, l := range got {
			if !slices.Contains(old, l) {
				t.Errorf("new: %s", l)
			}
		}
		for _, l := range old {
			if !slices.Contains(got, l) {
				t.Errorf("old: %s", l)
			}
		}
		t.Errorf("the texts are not those of %s; if they are right, run go test -run %s -update .", errorTextsFile, t.Name())
	}
}

// invalidTexts are the errors of calls whose arguments are wrong on rank 1 of 4.
func invalidTexts() (lines []string) {
	room := make([]float64, 64)
	mem := func(from, n int) engine.Mem {
		return engine.Mem{Ptr: unsafe.Pointer(&room[from]), N: n, Type: kernel.Float64}
	}
	typed := func(m engine.Mem, t kernel.DType) engine.Mem {
		m.Type = t
		return m
	}
	parts := func(list ...engine.Mem) []engine.Mem { return list }
	four := parts(mem(0, 1), mem(1, 1), mem(2, 1), mem(3, 1))
	for _, c := range []engine.Call{
		{Verb: engine.Broadcast, Root: 4, Src: mem(0, 4), Dst: mem(0, 4)},
		{Verb: engine.AllReduce, Src: mem(0, 4), Dst: mem(0, 4)},
		{Verb: engine.AllReduce, Red: engine.Avg, Src: typed(mem(0, 4), kernel.Int32), Dst: typed(mem(0, 4), kernel.Int32)},
		{Verb: engine.AllReduce, Red: engine.Sum},
		{Verb: engine.AllReduce, Red: engine.Sum, Src: engine.Mem{N: 4, Type: kernel.Float64}, Dst: mem(0, 4)},
		{Verb: engine.AllReduce, Red: engine.Sum, Src: engine.Mem{Ptr: unsafe.Pointer(&room[0]), N: engine.OutOfRange, Type: kernel.Float64}, Dst: mem(0, 4)},
		{Verb: engine.AllReduce, Red: engine.Sum, Src: mem(0, -1), Dst: mem(0, 4)},
		{Verb: engine.AllReduce, Red: engine.Sum, Src: engine.OnDevice(-3, nil, kernel.Float64, 4), Dst: mem(0, 4)},
		{Verb: engine.AllReduce, Red: engine.Sum, Src: engine.OnDevice(0, unsafe.Pointer(&room[0]), kernel.Float64, 4), Dst: mem(8, 4)},
		{Verb: engine.AllReduce, Red: engine.Sum, Src: typed(mem(0, 4), 99), Dst: mem(0, 4)},
		{Verb: engine.AllReduce, Red: engine.Sum, Src: mem(0, 4), Dst: typed(mem(8, 4), kernel.Int64)},
		{Verb: engine.AllReduce, Red: engine.Sum, Src: mem(0, 4), Dst: mem(8, 5)},
		{Verb: engine.AllReduce, Red: engine.Sum, Src: mem(0, 4), Dst: mem(2, 4)},
		{Verb: engine.AllToAll, Src: mem(0, 6), Dst: mem(8, 6)},
		{Verb: engine.AllToAll, Uneven: true},
		{Verb: engine.AllToAll, Uneven: true, Src: mem(0, 1), DstParts: four[:3], SrcParts: four},
		{Verb: engine.AllToAll, Uneven: true, DstParts: four, SrcParts: four},
		{Verb: engine.AllGather, Src: mem(0, 2), Dst: typed(mem(8, 8), kernel.Int64)},
		{Verb: engine.AllGather, Src: mem(0, 2), Dst: mem(8, 9)},
		{Verb: engine.AllGather, Src: mem(0, 2), Dst: mem(0, 8)},
		{Verb: engine.AllGather, Uneven: true, Src: mem(0, 2), DstParts: four},
		{Verb: engine.AllGather, Uneven: true, Src: mem(8, 2), DstParts: parts(mem(0, 2), mem(1, 1), mem(2, 1), mem(3, 1))},
		{Verb: engine.AllGather, Uneven: true, Src: mem(8, 2), DstParts: parts(four[0], typed(four[1], kernel.Int64), four[2], four[3])},
		{Verb: engine.AllGather, Uneven: true, Src: mem(8, 2), DstParts: parts(four[0], mem(1, -2), four[2], four[3])},
	} {
		lines = append(lines, fmt.Sprintf("%s: %v", c.Op(), c.Check(1, 4)))
	}
	return lines
}

// failureTexts are the texts of failures that engines share.
func failureTexts() []string {
	m := engine.Message{Peer: 2, Tag: 7, Seq: 3, Mem: engine.Mem{N: 4, Type: kernel.Float32}}
	lost := &engine.Failure{Kind: engine.ErrRankLost, Lost: []int{1}, Facts: engine.Facts{Text: "rank 1 is lost"}}
	list := []error{
		m.Mismatch(1, 5, kernel.Int32),
		engine.Excuse(lost, []int{4, 7}, []int{4, 7, 9}, 0),
		engine.Excuse(lost, []int{4, 7}, []int{4, 9}, 0),
	}
	var lines []string
	for _, err := range list {
		lines = append(lines, err.Error())
	}
	return lines
}

// localTexts are what goroutine ranks report.
func localTexts(t *testing.T) (lines []string) {
	var device [16]byte // stands for memory of a device
	bytes := func(n int) tutti.Buffer { return tutti.Of(make([]uint8, n)) }
	for _, c := range []struct {
		name string
		cfg  tutti.Config
		do   func(ctx context.Context, c *tutti.Comm) error
	}{
		{"mismatch", tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
			if c.Rank() == 0 {
				time.Sleep(50 * time.Millisecond) // so that rank 0 finds it
				return c.Barrier(ctx)
			}
			return c.AllReduce(ctx, bytes(3), tutti.Max)
		}},
		{"uneven", tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
			if c.Rank() == 1 {
				_ = c.AllGatherV(ctx, []tutti.Buffer{bytes(1), bytes(2)}, bytes(2))
				return nil
			}
			return c.AllGatherV(ctx, []tutti.Buffer{bytes(1), bytes(3)}, bytes(1))
		}},
		{"timeout", tutti.Config{Timeout: 20 * time.Millisecond}, func(ctx context.Context, c *tutti.Comm) error {
			if c.Rank() == 1 {
				return nil
			}
			return c.Barrier(ctx)
		}},
		{"cancelled", tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
			if c.Rank() == 1 {
				return nil
			}
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(20*time.Millisecond, func() { cancel(errors.New("the user's reason")) })
			return c.Barrier(ctx)
		}},
		{"cancelled before", tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
			if c.Rank() == 1 {
				return nil
			}
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return c.Barrier(ctx)
		}},
		{"deadline", tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
			if c.Rank() == 1 {
				return nil
			}
			ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			return c.Barrier(ctx)
		}},
		{"message", tutti.Config{Timeout: 20 * time.Millisecond}, func(ctx context.Context, c *tutti.Comm) error {
			if c.Rank() == 1 {
				return nil
			}
			return c.Recv(ctx, 1, bytes(1), 5)
		}},
		{"closed by the other", tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
			if c.Rank() == 1 {
				return c.Close()
			}
			return c.Barrier(ctx)
		}},
		{"closed", tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
			if c.Rank() == 1 {
				return nil
			}
			return errors.Join(c.Close(), c.Barrier(ctx))
		}},
		{"Abort", tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
			if c.Rank() == 1 {
				c.Abort(errors.New("the user's reason"))
				return nil
			}
			return c.Barrier(ctx)
		}},
		{"device", tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
			if c.Rank() == 1 {
				return nil
			}
			return c.AllReduce(ctx, tutti.DeviceBuffer(0, unsafe.Pointer(&device), tutti.Float32Type, 4), tutti.Sum)
		}},
		{"invalid", tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
			if c.Rank() == 1 {
				return nil
			}
			return c.Broadcast(ctx, bytes(1), 9)
		}},
	} {
		comms := local(t, 2, c.cfg)
		lines = append(lines, fmt.Sprintf("%s: %v", c.name, each(t, comms, c.do)[0]))
	}
	return lines
}

// noUserSees are directories whose errors only tests, measurements and examples report.
var noUserSees = []string{
	"bench", "examples", "tools", "internal/bench", "internal/proctest", "internal/netns", "internal/race", "internal/fakegpu",
	"internal/engine/enginetest",
}

// sourceTexts are the formats of errors in the source, by package.
func sourceTexts(t *testing.T) (lines []string) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(noUserSees, path) || d.Name() == "testdata" || len(path) > 1 && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			for _, text := range errorFormats(n) {
				lines = append(lines, fmt.Sprintf("%s: %s", filepath.ToSlash(filepath.Dir(path)), strings.ReplaceAll(text, "\n", `\n`)))
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// errorFormats are the formats in a node that makes an error.
func errorFormats(n ast.Node) (list []string) {
	switch n := n.(type) {
	case *ast.CallExpr:
		name := ""
		switch f := n.Fun.(type) {
		case *ast.Ident:
			name = f.Name
		case *ast.SelectorExpr:
			name = f.Sel.Name
			if x, ok := f.X.(*ast.Ident); ok && name == "New" {
				name = x.Name + ".New"
			}
		}
		if slices.Contains([]string{"errors.New", "Errorf", "invalid", "mismatchError", "disagree", "refuse"}, name) {
			for _, arg := range n.Args {
				list = append(list, literals(arg)...)
			}
		}
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && strings.EqualFold(key.Name, "reason") {
			return literals(n.Value)
		}
	case *ast.AssignStmt:
		for i, to := range n.Lhs {
			if s, ok := to.(*ast.SelectorExpr); ok && strings.EqualFold(s.Sel.Name, "reason") && i < len(n.Rhs) {
				list = append(list, literals(n.Rhs[i])...)
			}
		}
	}
	return list
}

// literals are the texts that an expression is made of.
func literals(e ast.Expr) []string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING && text != "" {
			return []string{text}
		}
	case *ast.BinaryExpr:
		if parts := append(literals(e.X), literals(e.Y)...); len(parts) > 0 {
			return []string{strings.Join(parts, "")}
		}
	case *ast.CallExpr:
		if s, ok := e.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Sprintf" {
			return literals(e.Args[0])
		}
	}
	return nil
}
