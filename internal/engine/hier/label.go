package hier

import (
	"strconv"
	"strings"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// Inner engines compare the names of calls, and show the first 31 bytes of them
// in their errors. So the steps of a call are named after all that must be equal
// on every rank, written so that the errors can be put into the user's words:
// four digits for verb, type, reduction and form, the count, the root, and the
// name that the user gave the call. Numbers are to the base 36.

const base = 36

// labelKey is what a label is made of.
type labelKey struct {
	sig  engine.Sig
	name string
}

// mostLabels is how many labels are kept, so that repeated calls make none.
const mostLabels = 256

// label names the steps of a call.
func (e *Engine) label(c *engine.Call) string {
	key := labelKey{c.Sig(), c.Name}
	if l, ok := e.labels[key]; ok {
		return l
	}
	if len(e.labels) >= mostLabels {
		clear(e.labels)
	}
	l := newLabel(key.sig, key.name)
	e.labels[key] = l
	return l
}

func newLabel(s engine.Sig, name string) string {
	form := int64(0)
	if s.Uneven {
		form = 1
	}
	var b []byte
	for _, digit := range []int64{int64(s.Verb), int64(s.Type), int64(s.Red), form} {
		b = strconv.AppendInt(b, digit, base)
	}
	b = append(strconv.AppendInt(b, s.Count, base), ':')
	b = append(strconv.AppendInt(b, int64(s.Root), base), ':')
	return string(append(b, name...))
}

// readLabel describes the call that a label, or the beginning of one, was made
// of.
func readLabel(label string) (text string, ok bool) {
	const digits = 4
	fields := strings.SplitN(label, ":", 3)
	if len(fields) < 3 || len(fields[0]) <= digits {
		return "", false
	}
	var d [digits + 2]int64
	for i, field := range append(strings.Split(fields[0][:digits], ""), fields[0][digits:], fields[1]) {
		var err error
		if d[i], err = strconv.ParseInt(field, base, 64); err != nil {
			return "", false
		}
	}
	s := engine.Sig{
		Verb: engine.Verb(d[0]), Type: kernel.DType(d[1]), Red: engine.Red(d[2]), Uneven: d[3] != 0,
		Count: d[4], Root: int32(d[5]),
	}
	if fields[2] != "" {
		s.Name = 1 // there is one
	}
	return s.Text(fields[2]), true
}
