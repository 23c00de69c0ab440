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
		{Verb: engine.AllReduce, ReduceOp: engine.Avg, Src: typed(mem(0, 4), kernel.Int32), Dst: typed(mem(0, 4), kernel.Int32)},
		{Verb: engine.AllReduce, ReduceOp: engine.Xor, Src: mem(0, 4), Dst: mem(0, 4)},
		{Verb: engine.Scan, ReduceOp: engine.Avg, Src: mem(0, 4), Dst: mem(0, 4)},
		{Verb: engine.Scan, ReduceOp: engine.Sum, Src: mem(0, 4), Dst: mem(2, 4)},
		{Verb: engine.ExScan, ReduceOp: engine.Sum, Src: mem(0, 4)},
		{Verb: engine.AllReduce, ReduceOp: engine.Sum},
		{Verb: engine.AllReduce, ReduceOp: engine.Sum, Src: engine.Mem{N: 4, Type: kernel.Float64}, Dst: mem(0, 4)},
		{Verb: engine.AllReduce, ReduceOp: engine.Sum, Src: engine.Mem{Ptr: unsafe.Pointer(&room[0]), N: engine.OutOfRange, Type: kernel.Float64}, Dst: mem(0, 4)},
		{Verb: engine.AllReduce, ReduceOp: engine.Sum, Src: engine.Mem{N: engine.Freed, Type: kernel.Float64}, Dst: mem(0, 4)},
		{Verb: engine.AllReduce, ReduceOp: engine.Sum, Src: mem(0, -1), Dst: mem(0, 4)},
		{Verb: engine.AllReduce, ReduceOp: engine.Sum, Src: engine.OnDevice(-3, nil, kernel.Float64, 4), Dst: mem(0, 4)},
		{Verb: engine.AllReduce, ReduceOp: engine.Sum, Src: engine.OnDevice(0, unsafe.Pointer(&room[0]), kernel.Float64, 4), Dst: mem(8, 4)},
		{Verb: engine.AllReduce, ReduceOp: engine.Sum, Src: typed(mem(0, 4), 99), Dst: mem(0, 4)},
		{Verb: engine.AllReduce, ReduceOp: engine.Sum, Src: mem(0, 4), Dst: typed(mem(8, 4), kernel.Int64)},
		{Verb: engine.AllReduce, ReduceOp: engine.Sum, Src: mem(0, 4), Dst: mem(8, 5)},
		{Verb: engine.AllReduce, ReduceOp: engine.Sum, Src: mem(0, 4), Dst: mem(2, 4)},
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

// failureTexts are the texts of failures: of every event with every shape of its facts.
func failureTexts() (lines []string) {
	add := func(f engine.Failure) { lines = append(lines, f.Error()) }
	m := engine.Message{Peer: 2, Tag: 7, Seq: 3, Mem: engine.Mem{N: 4, Type: kernel.Float32}}
	add(*m.Mismatch(1, 2, 5, kernel.Int32))
	for _, facts := range disagreements() {
		add(engine.Failure{Kind: engine.ErrMismatch, Op: "AllReduce", Seq: 7, Facts: facts})
	}
	for _, loss := range []engine.Loss{"", engine.Closed, engine.Exited, engine.HostSilent, engine.Disconnected, engine.JoinFailed} {
		f := engine.Failure{Kind: engine.ErrRankLost, Op: "AllReduce", Seq: 7, Left: loss == engine.Closed || loss == engine.JoinFailed}
		f.Event, f.Loss = engine.RanksLost, loss
		f.Lost = []int{1}
		add(f)
		f.Lost, f.Text = []int{1, 2}, "an error"
		add(f)
	}
	lost := &engine.Failure{Kind: engine.ErrRankLost, Op: "Barrier", Seq: 2, Lost: []int{1}, Facts: engine.Facts{Event: engine.RanksLost, Loss: engine.Exited}}
	add(*engine.Excuse(lost, []int{4, 7}, []int{4, 7, 9}, 0))
	add(*engine.Excuse(lost, []int{4, 7}, []int{4, 9}, 0))
	for _, event := range []engine.Event{engine.LostWhileForming, engine.FormingFailed, engine.ParentFailed, engine.SharingFailed} {
		f := engine.Failure{Kind: engine.ErrRankLost, Op: "Split", Seq: 7, Lost: []int{1}, Facts: engine.Facts{Event: event, Ranks: []int{0, 1}, Cause: lost}}
		add(f)
		f.Kind, f.Lost, f.Cause, f.Text = engine.ErrAborted, nil, nil, "an error"
		if event == engine.FormingFailed || event == engine.SharingFailed {
			add(f)
		}
	}
	for _, facts := range interruptions() {
		kind := engine.ErrTimeout
		if facts.Event == engine.Cancelled {
			kind = engine.ErrAborted
		}
		add(engine.Failure{Kind: kind, Op: "AllReduce", Seq: 7, Facts: facts})
	}
	for _, f := range []engine.Failure{
		{Kind: engine.ErrCorrupt, Facts: engine.Facts{Event: engine.TransferDamaged, Sides: []engine.Side{{Rank: 1}, {Rank: 2}}, Text: "192.0.2.1:80"}},
		{Kind: engine.ErrCorrupt, Facts: engine.Facts{Event: engine.ResultDiffers, Ranks: []int{1}}},
		{Kind: engine.ErrCorrupt, Facts: engine.Facts{Event: engine.ResultsDiffer, Ranks: []int{1, 2}}},
		{Kind: engine.ErrTimeout, Op: "Send", Seq: 3, Facts: engine.Facts{Event: engine.WaitCycle, Limit: time.Minute, Total: 5, Waits: []engine.MessageWait{
			{Rank: 1, Peer: 2, Tag: 3, Send: true}, {Rank: 2, Peer: 4, Tag: -3},
		}}},
		{Kind: engine.ErrTimeout, Op: "Send", Seq: 3, Facts: engine.Facts{Event: engine.WaitCycle, Limit: time.Minute, Total: 2, Waits: []engine.MessageWait{
			{Rank: 1, Peer: 2, Tag: 3, Send: true}, {Rank: 2, Peer: 1, Tag: 4},
		}}},
		{Kind: engine.ErrAborted, Facts: engine.Facts{Event: engine.TransportFailed, Text: "an error"}},
		{Kind: engine.ErrAborted, Facts: engine.Facts{Event: engine.DeviceFailed, Device: "device 0", Text: "an error"}},
		{Kind: engine.ErrAborted, Facts: engine.Facts{Event: engine.DeviceUnfit, Device: "device 0", Text: "an error"}},
		{Kind: engine.ErrRevoked, Facts: engine.Facts{Event: engine.AbortCalled}},
		{Kind: engine.ErrRevoked, Facts: engine.Facts{Event: engine.AbortCalled, Text: "the user's reason"}},
		{Kind: engine.ErrRevoked, Op: "Shrink", Facts: engine.Facts{Event: engine.OpCalled}},
		{Kind: engine.ErrUnsupported, Facts: engine.Facts{Text: "an error"}},
		{Kind: engine.ErrAborted},
	} {
		add(f)
	}
	return lines
}

// disagreements returns the facts of calls that differ between ranks, in every shape that an engine reports.
func disagreements() []engine.Facts {
	reduce := engine.CallInfo{Fingerprint: engine.Fingerprint{Verb: engine.AllReduce, Type: kernel.Float32, ReduceOp: engine.Sum, Count: 4, Name: 2}, Name: "bias"}
	barrier := engine.CallInfo{Fingerprint: engine.Fingerprint{Verb: engine.Barrier}}
	device, batch := reduce, engine.CallInfo{Fingerprint: engine.Fingerprint{Verb: engine.Group, Count: 2}}
	device.Device = true
	larger := batch
	larger.Fingerprint.Count = 3
	sum := engine.CallInfo{Fingerprint: engine.Fingerprint{Verb: engine.Reduce, Type: kernel.Float32, ReduceOp: engine.Sum, Count: 4}}
	other := func(change func(*engine.Fingerprint)) engine.Side {
		call := sum
		change(&call.Fingerprint)
		return engine.Side{Call: call}
	}
	sides := func(a, b engine.Side) []engine.Side {
		b.Rank = 1
		return []engine.Side{a, b}
	}
	return []engine.Facts{
		{Event: engine.CallsDiffer, Sides: sides(engine.Side{Call: reduce}, engine.Side{Call: barrier})},
		{Event: engine.CallsDiffer, Sides: sides(engine.Side{Call: device}, engine.Side{Call: batch})},
		{Event: engine.CallsDiffer},
		{Event: engine.CallsDiffer, Sides: sides(engine.Side{Call: sum}, other(func(s *engine.Fingerprint) { s.Count = 5 }))},
		{Event: engine.CallsDiffer, Sides: sides(engine.Side{Call: sum}, other(func(s *engine.Fingerprint) { s.Type = kernel.Int32 }))},
		{Event: engine.CallsDiffer, Sides: sides(engine.Side{Call: sum}, other(func(s *engine.Fingerprint) { s.ReduceOp = engine.Max }))},
		{Event: engine.CallsDiffer, Sides: sides(engine.Side{Call: sum}, other(func(s *engine.Fingerprint) { s.Root = 1 }))},
		{Event: engine.CallsDiffer, Sides: sides(engine.Side{Call: batch}, engine.Side{Call: larger})},
		{Event: engine.StepsDiffer, Sides: sides(engine.Side{Call: reduce, Step: 7}, engine.Side{Call: barrier, Step: 9})},
		{Event: engine.AlgorithmsDiffer, Sides: sides(engine.Side{Call: reduce, Algorithm: "ring"}, engine.Side{Algorithm: "tree"})},
		{Event: engine.CountsDiffer, Sides: sides(engine.Side{N: 3}, engine.Side{N: 4})},
		{Event: engine.SegmentsDiffer, Sides: sides(engine.Side{N: 3}, engine.Side{N: 4})},
		{Event: engine.MemoryFreed, Sides: sides(engine.Side{}, engine.Side{})},
		{Event: engine.OutOfBounds, Sides: sides(engine.Side{N: 5}, engine.Side{N: 4})},
	}
}

// interruptions are the facts of operations that their context or a limit has ended.
func interruptions() (list []engine.Facts) {
	tag := 9
	barrier := engine.CallInfo{Fingerprint: engine.Fingerprint{Verb: engine.Barrier}}
	last := []engine.Side{{Rank: 1}, {Rank: 2, Call: barrier}}
	for _, w := range []engine.Wait{
		{},
		{Phase: engine.NotBegun},
		{Phase: engine.NotBegun, Unheard: []int{1}},
		{Phase: engine.Queued},
		{Phase: engine.AboutToWait, Ranks: []int{1, 2}},
		{Phase: engine.Arriving},
		{Phase: engine.Arriving, Ranks: []int{1}, Last: last[:1]},
		{Phase: engine.Arriving, Ranks: []int{1, 2}, Last: last},
		{Phase: engine.Finishing, Ranks: []int{1, 2}},
		{Phase: engine.Exchanging, Ranks: []int{1}},
		{Phase: engine.Exchanging, Ranks: []int{1, 2}, Unheard: []int{2, 3}, Last: last[1:]},
		{Phase: engine.Exchanging, Ranks: []int{2}, Relay: engine.HostsWait, Beyond: []int{3}},
		{Phase: engine.Exchanging, Ranks: []int{2}, Relay: engine.LeaderWaits, Leader: 2, Beyond: []int{3, 4}},
		{Phase: engine.Exchanging, Ranks: []int{2}, Relay: engine.HostsNotAsked, Beyond: []int{3, 4}},
		{Phase: engine.Sending, Ranks: []int{1}},
		{Phase: engine.Receiving, Ranks: []int{1}},
		{Phase: engine.Sending, Ranks: []int{1}, OtherTag: &tag},
		{Phase: engine.Receiving, Ranks: []int{1}, OtherTag: &tag},
		{Phase: engine.DeviceAtWork},
		{Phase: engine.DeviceAhead, Behind: []int{1}},
	} {
		list = append(list, engine.Facts{Event: engine.LimitPassed, Limit: time.Minute, Tag: 5, Device: "device 0", Wait: w})
	}
	for _, phase := range []engine.Phase{engine.PhaseUnknown, engine.NotBegun, engine.Queued} {
		w := engine.Wait{Phase: phase}
		list = append(list,
			engine.Facts{Event: engine.DeadlinePassed, Wait: w}, engine.Facts{Event: engine.Cancelled, Wait: w},
			engine.Facts{Event: engine.Cancelled, Text: "the user's reason", Wait: w})
	}
	return list
}

// localTexts returns the error that rank 0 of two goroutine ranks gets in each kind of failure. Rank 1 only
// provokes the failure; its own error is ignored.
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
		{"message", tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
			if c.Rank() == 1 {
				return nil
			}
			ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			_, err := c.Recv(ctx, 1, bytes(1), 5)
			_, anyErr := c.Recv(ctx, tutti.AnyRank, bytes(1), 5)
			return errors.Join(err, anyErr, c.Send(ctx, 1, bytes(1), 5))
		}},
		{"messages in a cycle", tutti.Config{Timeout: 20 * time.Millisecond}, func(ctx context.Context, c *tutti.Comm) error {
			if c.Rank() == 1 {
				return nil
			}
			return c.Send(ctx, 0, bytes(1), 5)
		}},
		{"message longer than its buffer", tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
			if c.Rank() == 1 {
				return c.Send(ctx, 0, bytes(3), 5)
			}
			_, err := c.Recv(ctx, 1, bytes(2), 5)
			_, next := c.Recv(ctx, 1, bytes(3), 5)
			return errors.Join(err, next)
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

// sourceTexts returns the formats of errors in the source, by package, sorted and without duplicates. It
// skips tests and the packages in noUserSees.
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

// errorFormats returns the formats in a syntax node that makes an error: calls such as errors.New and Errorf,
// composite literals of facts, and values of fields named reason.
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
	case *ast.CompositeLit:
		return factsText(n)
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

// factsText is the text in the facts of a failure that are nothing else.
func factsText(n *ast.CompositeLit) []string {
	if s, ok := n.Type.(*ast.SelectorExpr); !ok || s.Sel.Name != "Facts" {
		return nil
	}
	for _, e := range n.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "Text" {
				return literals(kv.Value)
			}
		}
	}
	return nil
}

// literals returns the constant texts of an expression: a literal, a sum of literals, or the format of a
// Sprintf. It returns nil for any other expression.
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
