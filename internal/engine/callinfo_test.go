package engine

import (
	"testing"

	"github.com/tutti-go/tutti/internal/kernel"
)

// TestLabel checks that a Label holds the name of a call, or the call of a step, as far as it fits.
func TestLabel(t *testing.T) {
	whole := Mem{N: 20000, Type: kernel.Float32}
	for _, c := range []struct {
		call Call
		text string
	}{
		{Call{Verb: Barrier}, "Barrier"},
		{
			Call{Verb: AllGather, Uneven: true, Src: Mem{N: 3, Type: kernel.Uint8}},
			"AllGatherV(uint8)",
		},
		{
			Call{Verb: Reduce, ReduceOp: Max, Root: 4095, Src: Mem{N: 1 << 40, Type: kernel.BFloat16}},
			"Reduce(1099511627776 x bfloat16, max, root 4095)",
		},
		{
			Call{Verb: AllReduce, ReduceOp: Sum, Src: whole, Name: "a: b:c"},
			`AllReduce(20000 x float32, sum, name "a: b:c")`,
		},
		{
			Call{Verb: Broadcast, Src: Mem{N: 7, Type: kernel.Int64}, Name: "the bias of the seventh"},
			`Broadcast(7 x int64, root 0, name "the bias of the seventh")`,
		},
	} {
		for _, call := range []Call{c.call, {Verb: Reduce, ReduceOp: Sum, Src: whole, Of: &c.call}} {
			var l Label
			for i := range l {
				l[i] = 0xff // the content of a reused Label
			}
			if call.Labelled() {
				call.PutLabel(&l)
			}
			if got := ReadCall(call.Fingerprint(), &l).String(); got != c.text {
				t.Errorf("%s, want %s", got, c.text)
			}
			if got := call.Info().String(); got != c.text {
				t.Errorf("Info: %s, want %s", got, c.text)
			}
		}
		step, other := Call{Verb: Barrier, Of: &c.call}, c.call
		if (other.Name != "") != other.Labelled() || !step.Labelled() || step.Fingerprint().Name&stepBit == 0 || c.call.Fingerprint().Name&stepBit != 0 {
			t.Errorf("%s: a step and a name look alike", c.text)
		}
		if other.Root++; other.Verb.Rooted() && (&Call{Verb: Barrier, Of: &other}).Fingerprint() == step.Fingerprint() {
			t.Errorf("%s: a step is not told from that of another call", c.text)
		}
		if n := testing.AllocsPerRun(10, func() { var l Label; step.PutLabel(&l); _ = step.Fingerprint() }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
	for _, name := range []string{"a name of more bytes than there is room for in a label", "länger als der Platz für äöü"} {
		c := Call{Verb: Barrier, Name: name}
		var l Label
		c.PutLabel(&l)
		if got := ReadCall(c.Fingerprint(), &l).Name; len(got) < 29 || name[:len(got)] != got {
			t.Errorf("%q became %q", name, got)
		}
	}
}

// A Label comes from another process and may hold any bytes.
func FuzzLabel(f *testing.F) {
	f.Add(uint64(1), []byte("\x01\x02\x03"))
	f.Add(uint64(2), []byte("a name"))
	f.Fuzz(func(_ *testing.T, name uint64, b []byte) {
		var l Label
		copy(l[:], b)
		_ = ReadCall(Fingerprint{Verb: Barrier, Name: name}, &l).String()
		for _, c := range ReadCalls(b) {
			_ = c.String()
		}
	})
}
