package inspect

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"time"

	"github.com/tutti-go/tutti/internal/flight"
)

//go:embed page.html
var pageText string

// Page writes an HTML page with the same contents as Text, and two charts per
// communicator: the last operations by number, and the operations with times on a
// time axis. It needs only a browser.
func Page(w io.Writer, comms []*Comm) error {
	page, err := template.New("page").Parse(pageText)
	if err != nil {
		return err
	}
	views := make([]view, len(comms))
	empty := emptyRows
	for i, c := range comms {
		views[i] = newView(c, &empty)
	}
	return page.Execute(w, views)
}

const (
	gridColumns = 24 // operations in the first chart
	cellW       = 40
	rowH        = 26
	labelW      = 80
	axisW       = gridColumns * cellW
	nameColumns = 6 // characters in a cell
	// emptyRows is the number of rows on the whole page for ranks without a dump. A
	// small dump can claim any number of ranks.
	emptyRows = 1024
)

// A row is a rank in both charts.
type row struct {
	rank int
	dump *flight.Dump // nil: the rank left no dump
}

// rowsOf returns the rows of a communicator. It subtracts the rows of ranks without
// a dump from empty, and returns how many ranks have no row.
func rowsOf(c *Comm, empty *int) (rows []row, left int) {
	absent, n := c.absent(min(*empty, mostAbsent))
	*empty -= len(absent)
	for _, d := range c.Ranks {
		rows = append(rows, row{d.Rank, d})
	}
	for _, r := range absent {
		rows = append(rows, row{r, nil})
	}
	slices.SortFunc(rows, func(a, b row) int { return a.rank - b.rank })
	return rows, n - len(absent)
}

// A view is one communicator's part of the page.
type view struct {
	Name      string
	Findings  []Finding
	Details   []string
	Width     int
	GridH     int
	LineH     int
	Axis      int // position of the time axis
	Rows      []label
	Columns   []label
	Cells     []cell
	Bars      []cell
	Ticks     []label
	AnyTimes  bool
	Messages  bool
	EndOfAxis int
}

// A label is a text at a position.
type label struct {
	X, Y  int
	Text  string
	Class string
}

// A cell is a rectangle.
type cell struct {
	X, Y  float64
	W, H  float64
	Class string // CSS class, for the colour
	Text  string
	Title string // tooltip
}

// newView lays out a communicator's part of the page. empty is how many ranks
// without a dump the page can still show; newView subtracts those of c.
func newView(c *Comm, empty *int) view {
	d := c.Diagnose()
	rows, left := rowsOf(c, empty)
	if left > 0 {
		d.Details = append(d.Details, fmt.Sprintf("%d ranks without a dump are not in the pictures", left))
	}
	v := view{
		Name: c.Name, Findings: d.Findings, Details: d.Details, Width: labelW + axisW + 10,
		GridH: (len(rows) + 1) * rowH, LineH: (len(rows)+1)*rowH + 8, Axis: len(rows)*rowH + 4,
		EndOfAxis: labelW + axisW,
	}
	named := make(map[int]bool)
	odd := make(map[uint64]map[int]bool)
	for _, f := range d.Findings {
		for _, r := range f.Ranks {
			named[r] = true
			if f.Seq > 0 {
				if odd[f.Seq] == nil {
					odd[f.Seq] = make(map[int]bool)
				}
				odd[f.Seq][r] = true
			}
		}
	}
	for y, r := range rows {
		class := ""
		if named[r.rank] {
			class = "named"
		}
		v.Rows = append(v.Rows, label{Y: y*rowH + rowH/2 + 4, Text: fmt.Sprintf("rank %d", r.rank), Class: class})
	}
	v.grid(rows, odd)
	v.line(rows)
	return v
}

// grid draws the last operations by number.
func (v *view) grid(rows []row, odd map[uint64]map[int]bool) {
	var newest uint64
	for _, r := range rows {
		if r.dump != nil && len(r.dump.Ops) > 0 {
			newest = max(newest, r.dump.Ops[len(r.dump.Ops)-1].Seq)
		}
	}
	shown := min(newest, gridColumns)
	for i := range shown {
		n := newest - shown + 1 + i
		x := labelW + int(i)*cellW
		v.Columns = append(v.Columns, label{X: x + cellW/2, Y: len(rows)*rowH + 18, Text: fmt.Sprint(n)})
		for y, r := range rows {
			k := cell{X: float64(x + 1), Y: float64(y*rowH + 1), W: cellW - 2, H: rowH - 2, Class: "none", Title: fmt.Sprintf("rank %d: nothing", r.rank)}
			if r.dump == nil {
				k.Title = fmt.Sprintf("rank %d: no dump", r.rank)
			} else if op := find(r.dump, n); op != nil {
				k.Class, k.Text = op.State, fmt.Sprintf("%.*s", nameColumns, op.Verb)
				k.Title = title(r.rank, r.dump, op)
			}
			if odd[n][r.rank] {
				k.Class += " odd"
			}
			v.Cells = append(v.Cells, k)
		}
	}
}

func title(r int, d *flight.Dump, op *flight.Op) string {
	text := fmt.Sprintf("rank %d: #%d %s, %s", r, op.Seq, Describe(op), op.State)
	if op.Peer != nil {
		text = fmt.Sprintf("rank %d: %s, %d bytes, %s", r, name(op), op.Bytes, op.State)
	}
	switch {
	case op.Start > 0 && op.End > 0:
		text += fmt.Sprintf(", took %v", round(span(op.Start, op.End)))
	case op.Start > 0:
		text += fmt.Sprintf(", for %v", age(d, op.Start))
	}
	return text
}

// line draws the operations with times. The axis is logarithmic: recent operations
// are wide, and an hour ago is still visible.
func (v *view) line(rows []row) {
	var end time.Time
	oldest := time.Microsecond
	for _, r := range rows {
		if r.dump != nil && written(r.dump).After(end) {
			end = written(r.dump)
		}
	}
	ago := func(d *flight.Dump, at int64) time.Duration { return end.Sub(d.Began.Add(time.Duration(at))) }
	type drawn struct {
		y    int
		rank int
		d    *flight.Dump
		op   *flight.Op
	}
	var list []drawn
	for y, r := range rows {
		if r.dump == nil {
			continue
		}
		for _, ops := range [][]flight.Op{r.dump.Ops, r.dump.Msgs} {
			for i := range ops {
				if ops[i].Start > 0 {
					list = append(list, drawn{y, r.rank, r.dump, &ops[i]})
					oldest = max(oldest, ago(r.dump, ops[i].Start))
				}
			}
		}
	}
	v.AnyTimes = len(list) > 0
	const newest = time.Microsecond
	scale := math.Log(float64(oldest)/float64(newest)) + 1e-9
	x := func(t time.Duration) float64 {
		return labelW + axisW*(1-math.Log(float64(max(t, newest))/float64(newest))/scale)
	}
	for _, k := range list {
		until := k.d.At
		if k.op.End > 0 {
			until = k.op.End
		}
		from, to := x(ago(k.d, k.op.Start)), x(ago(k.d, until))
		b := cell{X: from, Y: float64(k.y*rowH + 3), W: max(to-from, 1), H: rowH - 6, Class: k.op.State, Title: title(k.rank, k.d, k.op)}
		if k.op.Peer != nil {
			b.Y, b.H, v.Messages = b.Y+rowH-14, 8, true
		}
		v.Bars = append(v.Bars, b)
	}
	// Division, because the product may overflow a Duration.
	for t := newest; ; t *= 10 {
		v.Ticks = append(v.Ticks, label{X: int(x(t)), Y: len(rows)*rowH + 20, Text: t.String()})
		if t > oldest/10 {
			break
		}
	}
	slices.Reverse(v.Ticks)
}
