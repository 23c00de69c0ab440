package jobstore

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestKeys holds the texts that ranks of other versions use: those through which ranks find
// each other, and those that they read before their versions are compared.
func TestKeys(t *testing.T) {
	for got, want := range map[string]string{
		Ranks("0"): "tutti/0", Size: "size", Rank(3): "rank/3", Joined(3): "joined/3", Attempt(1): "attempt/1", Address(1): "address/1",
		Lineage(2): "line/2", Ticket(1): "late/1", Generation(World, 0): "world/0", Decision("world/0"): "world/0/next",
		GenerationAddress("world/1"): "world/1/address", Refused: "refused", Launchers: "launch",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestParse(t *testing.T) {
	for key, want := range map[string]int{Rank(7): 7, "rank/x": -1, "rank/": -1, Joined(7): -1, "rank/7/more": -1} {
		if rank, ok := ParseRank(key); ok != (want >= 0) || ok && rank != want {
			t.Errorf("%q: %d, %v", key, rank, ok)
		}
	}
	if rank, ok := ParseJoined(Joined(12)); rank != 12 || !ok {
		t.Error(rank, ok)
	}
}

func TestHolder(t *testing.T) {
	for holder, want := range map[string]string{Holder("3.1", "process 7 on a", "unique"): "3.1", Holder("", "a", "b"): "", Withdrawn: ""} {
		if name := HolderName(holder); name != want {
			t.Errorf("%q: %q, want %q", holder, name, want)
		}
	}
}

// otherKeys are the packages with other keys: the store's own, PyTorch's, and programs'.
var otherKeys = []string{"store", "torch", "internal/jobstore", "internal/sim", "examples"}

// TestNoKeyElsewhere checks that no other package passes a literal as a key to a store.
func TestNoKeyElsewhere(t *testing.T) {
	root := filepath.Join("..", "..")
	calls := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(otherKeys, filepath.ToSlash(rel)) || d.Name() == "testdata" || rel != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			for _, key := range storeKeys(n) {
				calls++
				if literal(key) {
					t.Errorf("%s: this key of the job's store must be made by a function of package jobstore", files.Position(key.Pos()))
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if calls < 50 {
		t.Errorf("only %d calls of a store were found", calls)
	}
}

// storeKeys returns the keys in a call of a method of a store, whose first argument is a
// context, and of a function that takes a context, a store and a key.
func storeKeys(n ast.Node) []ast.Expr {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) < 2 || literal(call.Args[0]) {
		return nil
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	switch f.Sel.Name {
	case "Set", "Get", "Add", "CompareAndSet", "Append", "Delete", "Push", "Pop", "TryPop", "QueueLen", "Barrier", "Create", "Await", "Prefix":
		return call.Args[1:2]
	case "Wait", "Check", "MultiGet":
		return call.Args[1:]
	case "Take", "Learn", "Propose":
		return call.Args[2:min(len(call.Args), 3)]
	}
	return nil
}

// literal reports whether an expression contains the text of a key.
func literal(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return literal(e.X) || literal(e.Y)
	case *ast.CallExpr:
		f, ok := e.Fun.(*ast.SelectorExpr)
		return ok && strings.HasPrefix(f.Sel.Name, "Sprint") && slices.ContainsFunc(e.Args, literal)
	}
	return false
}
