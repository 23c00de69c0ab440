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

// Page writes a page that shows the same as Text, with two pictures for each
// communicator: the last operations by number, and what has times on an axis
// of how long ago it was. It needs nothing but a browser.
func Page(w io.Writer, comms []*Comm) error {
	page, err := template.New("page").Parse(pageText)
	if err != nil {
		return err
	}
	views := make([]view, len(comms))
	for i, c := range comms {
		views[i] = newView(c)
	}
	return page.Execute(w, views)
}

const (
	columns  = 24 // operations in the first picture
	cellW    = 40
	rowH     = 26
	labelW   = 80
	axisW    = columns * cellW
	nameRoom = 6 // letters in a cell
)

// A view is one communicator's part of the page.
type view struct {
	Name      string
	Findings  []Finding
	Details   []string
	Width     int
	GridH     int
	LineH     int
	Axis      int // where the axis of times is
	Rows      []label
	Columns   []label
	Cells     []cell
	Bars      []cell
	Ticks     []label
	AnyTimes  bool
	Messages  bool
	EndOfAxis int
}

// A label is a text at a place.
type label struct {
	X, Y  int
	Text  string
	Class string
}

// A cell is a rectangle.
type cell struct {
	X, Y  float64
	W, H  float64
	Class string // how it is coloured
	Text  string
	Title string // what is shown to who points at it
}

func newView(c *Comm) view {
	d := c.Diagnose()
	v := view{
		Name: c.Name, Findings: d.Findings, Details: d.Details, Width: labelW + axisW + 10,
		GridH: (len(c.Ranks) + 1) * rowH, LineH: (len(c.Ranks)+1)*rowH + 8, Axis: len(c.Ranks)*rowH + 4,
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
	for r := range c.Ranks {
		class := ""
		if named[r] {
			class = "named"
		}
		v.Rows = append(v.Rows, label{Y: r*rowH + rowH/2 + 4, Text: fmt.Sprintf("rank %d", r), Class: class})
	}
	v.grid(c, odd)
	v.line(c)
	return v
}

// grid draws the last operations by number.
func (v *view) grid(c *Comm, odd map[uint64]map[int]bool) {
	var newest uint64
	for _, d := range c.Ranks {
		if d != nil && len(d.Ops) > 0 {
			newest = max(newest, d.Ops[len(d.Ops)-1].Seq)
		}
	}
	first := uint64(1)
	if newest > columns {
		first = newest - columns + 1
	}
	for n := first; n <= newest; n++ {
		x := labelW + int(n-first)*cellW
		v.Columns = append(v.Columns, label{X: x + cellW/2, Y: len(c.Ranks)*rowH + 18, Text: fmt.Sprint(n)})
		for r, d := range c.Ranks {
			k := cell{X: float64(x + 1), Y: float64(r*rowH + 1), W: cellW - 2, H: rowH - 2, Class: "none", Title: fmt.Sprintf("rank %d: nothing", r)}
			if d == nil {
				k.Title = fmt.Sprintf("rank %d: no dump", r)
			} else if op := find(d, n); op != nil {
				k.Class, k.Text = op.State, op.Verb[:min(nameRoom, len(op.Verb))]
				k.Title = title(r, d, op)
			}
			if odd[n][r] {
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
		text += fmt.Sprintf(", took %v", round(time.Duration(op.End-op.Start)))
	case op.Start > 0:
		text += fmt.Sprintf(", for %v", age(d, op.Start))
	}
	return text
}

// line draws what has times. The axis is logarithmic: what was last is wide,
// and an hour ago is still on it.
func (v *view) line(c *Comm) {
	var end time.Time
	oldest := time.Microsecond
	for _, d := range c.Ranks {
		if d != nil && written(d).After(end) {
			end = written(d)
		}
	}
	ago := func(d *flight.Dump, at int64) time.Duration { return end.Sub(d.Began.Add(time.Duration(at))) }
	type drawn struct {
		rank int
		d    *flight.Dump
		op   *flight.Op
	}
	var list []drawn
	for r, d := range c.Ranks {
		if d == nil {
			continue
		}
		for _, ops := range [][]flight.Op{d.Ops, d.Msgs} {
			for i := range ops {
				if ops[i].Start > 0 {
					list = append(list, drawn{r, d, &ops[i]})
					oldest = max(oldest, ago(d, ops[i].Start))
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
		b := cell{X: from, Y: float64(k.rank*rowH + 3), W: max(to-from, 1), H: rowH - 6, Class: k.op.State, Title: title(k.rank, k.d, k.op)}
		if k.op.Peer != nil {
			b.Y, b.H, v.Messages = b.Y+rowH-14, 8, true
		}
		v.Bars = append(v.Bars, b)
	}
	for t := newest; t <= oldest; t *= 10 {
		v.Ticks = append(v.Ticks, label{X: int(x(t)), Y: len(c.Ranks)*rowH + 20, Text: t.String()})
	}
	slices.Reverse(v.Ticks)
}
