package bench

import (
	"bytes"
	"testing"
)

// TestEventsInPieces reads events and other lines that arrive byte by byte.
func TestEventsInPieces(t *testing.T) {
	var aside bytes.Buffer
	printer := &Printer{o: new(Options), err: &aside}
	e := &events{printer: printer}
	event, err := encode(Event{Done: new(Finish)})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range append(append([]byte("[1] a line\n[0] "), event...), "[1] another\n"...) {
		if n, err := e.Write([]byte{b}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if printer.done == nil || e.failed() != nil {
		t.Errorf("the event did not come: %v", e.failed())
	}
	if aside.String() != "[1] a line\n[1] another\n" {
		t.Errorf("%q", &aside)
	}
}
