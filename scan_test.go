package tutti_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-go/tutti"
)

// TestScan compares Scan and ExScan with sums from rank 0 on, whose last bits depend on the order. Small data
// goes through slots and large data along the ranks.
func TestScan(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		for _, elems := range []int{0, 3, 100_000} {
			comms := local(t, n, tutti.Config{})
			all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
				value := func(rank, i int) float32 { return 1 / float32(3+7*rank+i%100) }
				mine, dst, before := make([]float32, elems), make([]float32, elems), make([]float32, elems)
				for i := range mine {
					mine[i], before[i] = value(c.Rank(), i), -1
				}
				if err := c.Scan(ctx, tutti.Of(dst), tutti.Of(mine), tutti.Sum); err != nil {
					return err
				}
				if err := c.ExScan(ctx, tutti.Of(before), tutti.Of(mine), tutti.Sum); err != nil {
					return err
				}
				if err := c.Scan(ctx, tutti.Of(mine), tutti.Of(mine), tutti.Sum); err != nil { // in place
					return err
				}
				for i := range dst {
					want, wantBefore := value(0, i), float32(-1)
					for r := 1; r <= c.Rank(); r++ {
						wantBefore = want
						want += value(r, i)
					}
					if dst[i] != want || mine[i] != want || before[i] != wantBefore {
						return fmt.Errorf("rank %d of %d, element %d: %v, in place %v, before %v; want %v and %v",
							c.Rank(), n, i, dst[i], mine[i], before[i], want, wantBefore)
					}
				}
				return nil
			})
		}
	}
}

// TestScanBatch runs scans and bitwise reductions of 16-bit integers together. Rank 0 of the ExScan passes no
// destination.
func TestScanBatch(t *testing.T) {
	comms := local(t, 4, tutti.Config{})
	all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		bit := []uint16{1 << c.Rank()}
		upTo, before, or := make([]uint16, 1), []uint16{0}, make([]uint16, 1)
		least := []int16{int16(-c.Rank())}
		var dst tutti.Buffer
		if c.Rank() > 0 {
			dst = tutti.Of(before)
		}
		err := c.Batch().Scan(tutti.Of(upTo), tutti.Of(bit), tutti.Or).ExScan(dst, tutti.Of(bit), tutti.Xor).
			AllReduceTo(tutti.Of(or), tutti.Of(bit), tutti.Or).AllReduce(tutti.Of(least), tutti.Min).Run(ctx)
		if err != nil {
			return err
		}
		if upTo[0] != 2<<c.Rank()-1 || before[0] != 1<<c.Rank()-1 || or[0] != 15 || least[0] != -3 {
			return fmt.Errorf("%b, %b, %b, %d", upTo, before, or, least)
		}
		return nil
	})
}

// TestScanErrors checks what Scan and the bitwise operators refuse, and that ranks that call Scan and ExScan
// learn of each other's call.
func TestScanErrors(t *testing.T) {
	comms := local(t, 3, tutti.Config{})
	all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		x := tutti.Of(make([]float32, 4))
		for _, err := range []error{
			c.Scan(ctx, x, x, tutti.Avg), c.ExScan(ctx, x, x, tutti.Avg),
			c.AllReduce(ctx, x, tutti.And), c.Scan(ctx, x, x, tutti.Or), c.AllReduce(ctx, x, tutti.Xor),
			c.Scan(ctx, x.Slice(0, 3), x.Slice(1, 4), tutti.Sum), c.Scan(ctx, tutti.Buffer{}, x, tutti.Sum),
		} {
			if !errors.Is(err, tutti.ErrInvalid) {
				return fmt.Errorf("%w, want ErrInvalid", err)
			}
		}
		var err error
		for err == nil {
			if c.Rank() == 0 {
				err = c.Scan(ctx, x, x, tutti.Sum)
			} else {
				err = c.ExScan(ctx, x, x, tutti.Sum)
			}
		}
		for _, words := range []string{"Scan(4 x float32, sum)", "ExScan(4 x float32, sum)"} {
			if !errors.Is(err, tutti.ErrMismatch) || !strings.Contains(err.Error(), words) {
				return fmt.Errorf("%w does not say %q", err, words)
			}
		}
		return nil
	})
}

// TestElem checks that the constraint Elem has int16 and uint16 and no other type that is defined by them. A
// type such as "type Half uint16" may hold floats.
func TestElem(t *testing.T) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "dtype.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	// Only the declarations of types: the others need other packages.
	file.Imports = nil
	file.Decls = slices.DeleteFunc(file.Decls, func(d ast.Decl) bool {
		g, ok := d.(*ast.GenDecl)
		return !ok || g.Tok != token.TYPE
	})
	more, err := parser.ParseFile(files, "more.go", "package tutti; type half uint16; type short int16; type small uint8", parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	pkg, err := new(types.Config).Check("tutti", files, []*ast.File{file, more}, nil)
	if err != nil {
		t.Fatal(err)
	}
	elem := pkg.Scope().Lookup("Elem").Type().Underlying().(*types.Interface)
	for name, want := range map[string]bool{
		"int16": true, "uint16": true, "Float16": true, "BFloat16": true, "small": true, "half": false, "short": false, "string": false,
	} {
		at := types.Universe.Lookup(name)
		if at == nil {
			at = pkg.Scope().Lookup(name)
		}
		if got := types.Satisfies(at.Type(), elem); got != want {
			t.Errorf("%s is an Elem: %v, want %v", name, got, want)
		}
	}
}
