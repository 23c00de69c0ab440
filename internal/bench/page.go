package bench

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"slices"
	"strings"
)

//go:embed page.tmpl
var pageText string

// pageData is a run as a page stores it.
type pageData struct {
	Start  *Start   `json:"start"`
	Points []Point  `json:"points"`
	Links  []Link   `json:"links,omitempty"`
	Done   *Finish  `json:"done"`
	Old    []Result `json:"old,omitempty"`
}

// page writes the report.
func (s *Printer) page() error {
	run := pageData{Start: s.start, Points: s.points, Links: s.links, Done: s.done}
	if s.saved != nil {
		run.Old = s.saved.Results
	}
	text, err := s.render(run)
	if err != nil {
		return err
	}
	return os.WriteFile(s.o.HTML, []byte(text), 0o644)
}

// writable returns why a page cannot be written. The check before the run saves the
// time of a run whose report would be lost.
func writable(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return nil // a pipe must not be opened and closed before its reader gets the page
	}
	fresh := errors.Is(err, fs.ErrNotExist)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	err = f.Close()
	if fresh {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// A view is the data for the page's template.
type view struct {
	pageData
	Verdict, Title string
	Against        string
	Data           template.HTML
	Charts         [][2]template.HTML // by operation: bandwidth, time
	Bars           []template.HTML
	Legend         []chartLine
	Rows           []pageRow
	RankHead       []string
	RankRows       []heatRow
	LinkHead       []string
	LinkRows       []heatRow
	SpeedRows      []heatRow
	Facts          [][2]string
}

type pageRow struct {
	Result
	Change Change
}

type heatRow struct {
	Name  string
	Cells []heatCell
}

type heatCell struct{ Text, Class, Title string }

// render returns the page as HTML. The caller holds s.mu.
func (s *Printer) render(run pageData) (string, error) {
	data, err := json.Marshal(run) // Marshal escapes characters that would end the element
	if err != nil {
		return "", err
	}
	v := view{
		pageData: run, Verdict: s.verdict(), Data: template.HTML(dataOpen + string(data) + dataClose),
		Title: fmt.Sprintf("tutti bench: %s, %s", run.Start.Engine, counted(run.Start.Ranks, "rank")),
	}
	if s.saved != nil {
		v.Against = s.comparison()
	}
	for i := range run.Points {
		row := pageRow{Result: run.Points[i].Result}
		if s.saved != nil {
			row.Change = s.saved.Compare(&run.Points[i])
		}
		v.Rows = append(v.Rows, row)
	}
	v.charts()
	v.distributions()
	v.ranks()
	v.links()
	v.facts()
	t, err := template.New("page").Funcs(template.FuncMap{"number": number, "bytes": byteText}).Parse(pageText)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if err := t.Execute(&b, &v); err != nil {
		return "", err
	}
	return b.String(), nil
}

// groups groups points by chart, in order.
func (v *view) groups() (names []string, of map[string][]int) {
	of = map[string][]int{}
	for i := range v.Points {
		r := &v.Points[i].Result
		if r.Bytes == 0 {
			continue
		}
		name := r.Op
		if r.DType != v.Points[0].Result.DType || r.Reduce != none && r.Reduce != v.firstReduce() {
			name += " " + r.DType + " " + r.Reduce
		}
		if of[name] == nil {
			names = append(names, name)
		}
		of[name] = append(of[name], i)
	}
	return names, of
}

func (v *view) firstReduce() string {
	for i := range v.Points {
		if r := v.Points[i].Result.Reduce; r != none {
			return r
		}
	}
	return none
}

// charts draws bandwidth and time over size for each operation: this run with its
// best and worst times, and the saved run.
func (v *view) charts() {
	names, of := v.groups()
	for _, name := range names {
		bus := chartLine{name: "this run", class: "a"}
		p50, p99, best := chartLine{name: "p50", class: "a"}, chartLine{name: "p99", class: "c"}, chartLine{name: "min", class: "d"}
		oldBus, oldP50 := chartLine{name: "saved run", class: "b"}, chartLine{name: "saved run's p50", class: "b"}
		for _, i := range of[name] {
			r := &v.Points[i].Result
			x := float64(r.Bytes)
			bus.add(x, r.BusBW)
			p50.add(x, r.P50)
			p99.add(x, r.P99)
			best.add(x, r.Min)
			for j := range v.Old {
				if o := &v.Old[j]; o.Op == r.Op && o.Bytes == r.Bytes && o.DType == r.DType && o.Reduce == r.Reduce && o.Ranks == r.Ranks {
					oldBus.add(x, o.BusBW)
					oldP50.add(x, o.P50)
				}
			}
		}
		up := chart{title: name + ", bus bandwidth", unit: "GB/s", lines: []chartLine{bus}}
		down := chart{title: name + ", time", unit: "us", lines: []chartLine{p99, best, p50}}
		if len(oldBus.xs) > 0 {
			up.lines = append([]chartLine{oldBus}, up.lines...)
			down.lines = append([]chartLine{oldP50}, down.lines...)
		}
		v.Charts = append(v.Charts, [2]template.HTML{up.svg(), down.svg()})
	}
	v.Legend = []chartLine{{name: "this run (p50)", class: "a"}, {name: "p99", class: "c"}, {name: "min", class: "d"}}
	if len(v.Old) > 0 {
		v.Legend = append(v.Legend, chartLine{name: v.savedName(), class: "b"})
	}
}

// savedName names the saved run, with its engine if it is another one.
func (v *view) savedName() string {
	var engines []string
	for i := range v.Old {
		engines = append(engines, v.Old[i].Engine)
	}
	if engines = unique(engines); len(engines) == 1 && engines[0] == v.Start.Engine {
		return "saved run"
	}
	return fmt.Sprintf("saved run (%s)", strings.Join(engines, ", "))
}

func (l *chartLine) add(x, y float64) { l.xs, l.ys = append(l.xs, x), append(l.ys, y) }

// Name is for the template.
func (l chartLine) Name() string { return l.name }

// Class is for the template.
func (l chartLine) Class() string { return l.class }

// distributions draws the histograms of the first operation.
func (v *view) distributions() {
	const most = 12
	for i := range v.Points {
		if len(v.Bars) < most && v.Points[i].Result.Op == v.Points[0].Result.Op {
			v.Bars = append(v.Bars, v.Points[i].histogramSVG())
		}
	}
}

// ranks compares the medians of the ranks.
func (v *view) ranks() {
	if v.Start.Ranks < 2 {
		return
	}
	least := minDelays(v.Start.ranksOnHost() > v.Start.Cores)[0]
	for r := range v.Start.Ranks {
		v.RankRows = append(v.RankRows, heatRow{Name: fmt.Sprintf("rank %d", r)})
	}
	for i := range v.Points {
		p := &v.Points[i]
		v.RankHead = append(v.RankHead, p.Result.Op+" "+byteText(p.Result.Bytes))
		usual := median(p.Ranks)
		for r, t := range p.Ranks {
			c := heatCell{Class: heat(t, usual, least), Title: fmt.Sprintf("%s, rank %d: %s us", p.Result.Op+" "+byteText(p.Result.Bytes), r, shortNumber(t))}
			if len(v.Points) <= 8 {
				c.Text = shortNumber(t)
			}
			v.RankRows[r].Cells = append(v.RankRows[r].Cells, c)
		}
	}
}

// links shows the pairs, from row to column.
func (v *view) links() {
	if len(v.Links) == 0 {
		return
	}
	least := minDelays(v.Start.ranksOnHost() > v.Start.Cores)
	usual := map[bool][2]float64{}
	for _, remote := range []bool{false, true} {
		var small, large []float64
		for _, l := range v.Links {
			if l.Remote == remote {
				small, large = append(small, l.Small.P50), append(large, l.Large.P50)
			}
		}
		usual[remote] = [2]float64{typical(small), typical(large)}
	}
	for r := range v.Start.Ranks {
		v.LinkHead = append(v.LinkHead, fmt.Sprint(r))
		times, speeds := heatRow{Name: fmt.Sprint(r)}, heatRow{Name: fmt.Sprint(r)}
		for to := range v.Start.Ranks {
			i := slices.IndexFunc(v.Links, func(l Link) bool { return l.From == r && l.To == to })
			if i < 0 {
				times.Cells, speeds.Cells = append(times.Cells, heatCell{Class: "h0"}), append(speeds.Cells, heatCell{Class: "h0"})
				continue
			}
			l := v.Links[i]
			times.Cells = append(times.Cells, heatCell{
				shortNumber(l.Small.P50), heat(l.Small.P50, usual[l.Remote][0], least[0]), fmt.Sprintf("%d to %d: %s us", r, to, number(l.Small.P50)),
			})
			speeds.Cells = append(speeds.Cells, heatCell{
				shortNumber(l.Large.AlgBW), heat(l.Large.P50, usual[l.Remote][1], least[1]), fmt.Sprintf("%d to %d: %s GB/s", r, to, number(l.Large.AlgBW)),
			})
		}
		v.LinkRows, v.SpeedRows = append(v.LinkRows, times), append(v.SpeedRows, speeds)
	}
}

func (v *view) cores() string {
	if v.Start.Bound {
		return fmt.Sprintf("%d, each rank bound to its own", v.Start.Cores)
	}
	return fmt.Sprint(v.Start.Cores)
}

// facts lists what is known about rank 0's host. Unknown facts are left out.
func (v *view) facts() {
	m := v.Start.Machine
	v.Facts = [][2]string{
		{"host", m.Host},
		{"processor", m.CPU},
		{"cores", v.cores()},
		{"system", m.System},
		{"reductions", m.Kernel},
		{"tutti", m.Version},
		{"Go", m.Go},
		{"time", m.Time},
		{"ranks", strings.Join(slices.Compact(slices.Clone(v.Start.Names)), "; ")},
		{"environment", strings.Join(m.Env, " ")},
	}
	v.Facts = slices.DeleteFunc(v.Facts, func(f [2]string) bool { return f[1] == "" })
}
