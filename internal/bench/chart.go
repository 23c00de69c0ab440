package bench

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// A chart is drawn as SVG, with the colours of the page's style sheet. It needs no
// script and can be printed.
type chart struct {
	title, unit string
	lines       []chartLine
}

type chartLine struct {
	name  string
	class string // CSS class
	xs    []float64
	ys    []float64
}

// Dimensions of a chart. The page scales it to the available width.
const (
	chartWidth  = 460
	chartHeight = 270
	left        = 58
	right       = 16
	top         = 30
	bottom      = 34
)

// svg draws a chart over bytes. Both axes are logarithmic.
func (c *chart) svg() template.HTML {
	var xs, ys []float64
	for _, l := range c.lines {
		for i := range l.xs {
			if l.xs[i] > 0 && l.ys[i] > 0 {
				xs, ys = append(xs, l.xs[i]), append(ys, l.ys[i])
			}
		}
	}
	if len(xs) == 0 {
		return ""
	}
	x := logScale(xs, 2, left, chartWidth-right)
	y := logScale(ys, 10, chartHeight-bottom, top)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s"><title>%s</title>`, chartWidth, chartHeight,
		template.HTMLEscapeString(c.title), template.HTMLEscapeString(c.title))
	fmt.Fprintf(&b, `<text class="head" x="4" y="16">%s <tspan class="tick">%s</tspan></text>`, template.HTMLEscapeString(c.title), template.HTMLEscapeString(c.unit))
	for _, v := range y.ticks(5) {
		py := y.at(v)
		fmt.Fprintf(&b, `<line class="grid" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/><text class="tick" x="%d" y="%.1f" text-anchor="end">%s</text>`,
			left, py, chartWidth-right, py, left-6, py+4, strconv.FormatFloat(digits(v, 3), 'f', -1, 64))
	}
	for _, v := range x.ticks(8) {
		px := x.at(v)
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/><text class="tick" x="%.1f" y="%d" text-anchor="middle">%s</text>`,
			px, top, px, chartHeight-bottom, px, chartHeight-bottom+16, byteText(int(math.Round(v))))
	}
	fmt.Fprintf(&b, `<text class="tick" x="%d" y="%d" text-anchor="end">bytes</text>`, chartWidth-right, chartHeight-4)
	for _, l := range c.lines {
		l.draw(&b, x, y)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

// draw draws a line, and its points with tooltips.
func (l *chartLine) draw(b *strings.Builder, x, y scale) {
	var path strings.Builder
	var dots strings.Builder
	for i := range l.xs {
		if l.xs[i] <= 0 || l.ys[i] <= 0 {
			continue
		}
		px, py := x.at(l.xs[i]), y.at(l.ys[i])
		letter := "L"
		if path.Len() == 0 {
			letter = "M"
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", letter, px, py)
		fmt.Fprintf(&dots, `<circle class="dot %s" cx="%.1f" cy="%.1f" r="3"><title>%s, %s: %s</title></circle>`,
			l.class, px, py, template.HTMLEscapeString(l.name), byteText(int(l.xs[i])), number(l.ys[i]))
	}
	fmt.Fprintf(b, `<path class="line %s" d="%s"/>%s`, l.class, path.String(), dots.String())
}

// A scale maps values to positions, logarithmically.
type scale struct {
	base, low, high float64 // logarithms of the ends
	from, to        float64
}

func logScale(values []float64, base, from, to float64) scale {
	s := scale{base: math.Log(base), from: from, to: to, low: math.Inf(1), high: math.Inf(-1)}
	for _, v := range values {
		s.low, s.high = min(s.low, math.Log(v)/s.base), max(s.high, math.Log(v)/s.base)
	}
	if base == 10 { // a margin above and below
		s.low, s.high = s.low-0.08*(s.high-s.low), s.high+0.08*(s.high-s.low)
	}
	if s.high-s.low < 0.7 { // so that there are two ticks
		s.low, s.high = s.low-0.5, s.high+0.5
	}
	return s
}

func (s scale) at(v float64) float64 {
	return s.from + (s.to-s.from)*(math.Log(v)/s.base-s.low)/(s.high-s.low)
}

// ticks returns powers of the base, at most most of them, or one more. If the ends
// are close it adds halves.
func (s scale) ticks(most int) (list []float64) {
	step := max(1, math.Ceil((s.high-s.low)/float64(most)))
	if list = s.powers(step); len(list) < 3 && step > 1 {
		list = s.powers(step - 1)
	}
	if len(list) < 3 && s.base > 1 {
		list = nil
		for e := math.Floor(s.low); e <= s.high; e++ {
			for _, m := range []float64{1, 2, 5} {
				if v := math.Exp(e*s.base) * m; math.Log(v)/s.base >= s.low && math.Log(v)/s.base <= s.high {
					list = append(list, v)
				}
			}
		}
	}
	return list
}

// powers returns powers of the base, step apart.
func (s scale) powers(step float64) (list []float64) {
	for e := math.Ceil(s.low/step) * step; e <= s.high+1e-9; e += step {
		list = append(list, math.Exp(e*s.base))
	}
	return list
}

// histogramSVG draws a histogram whose bins have a logarithmic scale.
func (p *Point) histogramSVG() template.HTML {
	const w, h = chartWidth, 150
	var most int64
	for _, n := range p.Bins {
		most = max(most, n)
	}
	if most == 0 || p.Low <= 0 {
		return ""
	}
	var b strings.Builder
	title := p.Result.Op + " " + byteText(p.Result.Bytes)
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="distribution of %s"><text class="head" x="4" y="16">%s</text>`, w, h, title, title)
	wide := float64(w-left-right) / float64(len(p.Bins))
	edge := func(i int) float64 { return p.Low * math.Pow(p.High/p.Low, float64(i)/float64(len(p.Bins))) }
	for i, n := range p.Bins {
		if n == 0 {
			continue
		}
		tall := float64(h-24-24) * float64(n) / float64(most)
		fmt.Fprintf(&b, `<rect class="bar" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%d between %s and %s us</title></rect>`,
			left+float64(i)*wide, float64(h-24)-tall, max(wide-1, 1), tall, n, shortNumber(edge(i)), shortNumber(edge(i+1)))
	}
	for _, f := range []int{0, len(p.Bins) / 2, len(p.Bins)} {
		anchor := map[int]string{0: "start", len(p.Bins): "end"}[f]
		if anchor == "" {
			anchor = "middle"
		}
		fmt.Fprintf(&b, `<text class="tick" x="%.1f" y="%d" text-anchor="%s">%s us</text>`, left+float64(f)*wide, h-8, anchor, shortNumber(edge(f)))
	}
	fmt.Fprintf(&b, `<text class="tick" x="%d" y="30" text-anchor="end">%d</text></svg>`, left-6, most)
	return template.HTML(b.String())
}

// heat returns a CSS class for how many times slower than usual x is, or none if it
// is not slow enough to be reported.
func heat(x, usual, atLeast float64) string {
	times := x / max(usual, 1e-9)
	switch {
	case times < 1.25 || x < usual+atLeast:
		return "h1"
	case times < 1.6:
		return "h2"
	case times < 2:
		return "h3"
	case times < 4:
		return "h4"
	}
	return "h5"
}
