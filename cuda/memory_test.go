package cuda_test

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/tutti-go/tutti/cuda"
)

// roundTrip copies elements of type T to the device, fills a part with v, copies them on the device and back,
// and compares them.
func roundTrip[T cuda.Elem](t *testing.T, d *cuda.Device, v T) {
	t.Helper()
	const n = 1000
	in, out := make([]T, n), make([]T, n)
	for i := range in {
		in[i] = T(i % 100)
	}
	s, err := cuda.Alloc[T](d, n)
	freeing(t, s, err)
	ok(t, s.CopyFrom(in), s.CopyTo(out))
	if !slices.Equal(in, out) {
		t.Errorf("%T: came back different", v)
	}
	mid := must(s.Slice(10, 20))(t)
	ok(t, mid.Fill(v), s.CopyTo(out))
	for i := 10; i < 20; i++ {
		in[i] = v
	}
	if !slices.Equal(in, out) {
		t.Errorf("%T: filled wrong: %v", v, out[8:22])
	}
	other, err := cuda.Alloc[T](d, n)
	freeing(t, other, err)
	ok(t, other.Copy(s), other.CopyTo(out))
	if !slices.Equal(in, out) {
		t.Errorf("%T: copied wrong on the device", v)
	}
}

func TestCopyAndFill(t *testing.T) {
	d := open(t, 0)
	roundTrip[int8](t, d, -7)
	roundTrip[uint8](t, d, 200)
	roundTrip[int16](t, d, -1234)
	roundTrip[uint16](t, d, 0xfedc)
	roundTrip[int32](t, d, -123456789)
	roundTrip[uint32](t, d, 0xfedcba98)
	roundTrip[int64](t, d, -1234567890123456789)
	roundTrip[uint64](t, d, 0x5555555555555555)
	roundTrip[int](t, d, -1)
	roundTrip[float32](t, d, 1.5)
	roundTrip[float64](t, d, -3.25)
}

func TestEmpty(t *testing.T) {
	d := open(t, 0)
	s, err := cuda.Alloc[float32](d, 0)
	freeing(t, s, err)
	ok(t, s.CopyFrom(nil), s.CopyTo([]float32{}), s.Fill(1))
	h, err := cuda.AllocHost[int32](d, 0)
	freeing(t, h, err)
	if len(h.Data()) != 0 {
		t.Error("not empty")
	}
}

// TestBadInput checks that wrong arguments, freed memory and closed objects are errors before CUDA is called:
// the fake GPU counts no call.
func TestBadInput(t *testing.T) {
	c, d := fake(t), open(t, 0)
	s, err := cuda.Alloc[int32](d, 10)
	freeing(t, s, err)
	gone := must(cuda.Alloc[int32](d, 10))(t)
	part := must(gone.Slice(2, 4))(t)
	ok(t, gone.Free(), gone.Free(), part.Free())
	st := must(d.NewStream())(t)
	ok(t, st.Close(), st.Close())
	other := open(t, 1)
	far := closing(t, must(other.NewStream())(t), nil)
	ev := must(d.NewEvent())(t)
	ok(t, ev.Close(), ev.Close())
	pool := closing(t, must(other.NewPool(0))(t), nil)
	here := closing(t, must(d.NewStream())(t), nil)

	names := []string{
		"cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpyPeerAsync", "cuMemsetD32Async",
		"cuMemAlloc_v2", "cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuEventRecord", "cuStreamWaitEvent",
		"cuStreamSynchronize", "cuMemFree_v2", "cuMemFreeAsync", "cuMemHostAlloc", "cuMemHostRegister_v2",
	}
	calls := func() (n int) {
		for _, name := range names {
			n += c.Calls(name)
		}
		return n
	}
	before := calls()
	for name, test := range map[string]struct {
		err  error
		kind error
	}{
		"negative length":       {second(cuda.Alloc[int8](d, -1)), cuda.ErrInvalid},
		"too many":              {second(cuda.Alloc[int64](d, 1<<62)), cuda.ErrInvalid},
		"no device":             {second(cuda.Alloc[int64](nil, 1)), cuda.ErrInvalid},
		"negative host length":  {second(cuda.AllocHost[int8](d, -1)), cuda.ErrInvalid},
		"nothing to pin":        {second(cuda.Pin(d, nil)), cuda.ErrInvalid},
		"too short":             {s.CopyFrom(make([]int32, 9)), cuda.ErrInvalid},
		"too long":              {s.CopyTo(make([]int32, 11)), cuda.ErrInvalid},
		"slice beyond":          {second(s.Slice(5, 11)), cuda.ErrInvalid},
		"slice backwards":       {second(s.Slice(5, 4)), cuda.ErrInvalid},
		"lengths differ":        {s.Copy(must(s.Slice(0, 5))(t)), cuda.ErrInvalid},
		"copy of nothing":       {s.Copy(nil), cuda.ErrInvalid},
		"freed":                 {gone.CopyFrom(make([]int32, 10)), cuda.ErrFreed},
		"freed, filled":         {gone.Fill(1), cuda.ErrFreed},
		"part of freed":         {part.Fill(1), cuda.ErrFreed},
		"from freed":            {s.Copy(gone), cuda.ErrFreed},
		"freed memory":          {gone.Memory().Alive(), cuda.ErrFreed},
		"closed stream":         {s.FillOn(st, 1), cuda.ErrClosed},
		"no stream":             {s.FillOn(nil, 1), cuda.ErrInvalid},
		"another stream":        {s.FillOn(far, 1), cuda.ErrInvalid},
		"freed elsewhere":       {s.FreeOn(far), cuda.ErrInvalid},
		"closed event":          {ev.Record(far), cuda.ErrClosed},
		"no event":              {far.WaitEvent(nil), cuda.ErrInvalid},
		"closed, waited for":    {far.WaitStream(st), cuda.ErrClosed},
		"closed, synchronized":  {st.Synchronize(), cuda.ErrClosed},
		"another's pool":        {second(cuda.AllocOn[int8](here, pool, 1)), cuda.ErrInvalid},
		"no stream to allocate": {second(cuda.AllocOn[int8](nil, nil, 1)), cuda.ErrInvalid},
		"access to itself":      {d.EnableAccess(d), cuda.ErrInvalid},
		"access to nothing":     {d.EnableAccess(nil), cuda.ErrInvalid},
		"odd address":           {far.WaitValue(3, 1), cuda.ErrInvalid},
		"no such device":        {second(cuda.Open(99, nil)), cuda.ErrInvalid},
		"misaligned":            {second(cuda.Wrap[int64](d, s.Pointer()+4, 1)), cuda.ErrInvalid},
		"foreign, too short":    {second(cuda.Wrap[int32](d, s.Pointer(), 11)), cuda.ErrInvalid},
		"foreign, elsewhere":    {second(cuda.Wrap[int32](other, s.Pointer(), 1)), cuda.ErrInvalid},
		"not a device's":        {second(cuda.Wrap[int32](d, 4096, 1)), cuda.ErrInvalid},
		"null":                  {second(cuda.Wrap[int32](d, 0, 1)), cuda.ErrInvalid},
	} {
		if !errors.Is(test.err, test.kind) {
			t.Errorf("%s: %v, want %v", name, test.err, test.kind)
		}
	}
	if n := calls() - before; n != 0 {
		t.Errorf("CUDA was called %d times", n)
	}
}

func second[V any](_ V, err error) error { return err }

// TestWrap wraps a part of allocated memory as another type. Free of the wrapper ends only the wrapper.
func TestWrap(t *testing.T) {
	d := open(t, 0)
	s, err := cuda.Alloc[int32](d, 100)
	freeing(t, s, err)
	w := must(cuda.Wrap[float32](d, s.Pointer()+40, 90))(t)
	ok(t, w.Fill(1), w.Free())
	if err := w.Fill(1); !errors.Is(err, cuda.ErrFreed) {
		t.Errorf("ended, it says %v", err)
	}
	got := make([]int32, 100)
	ok(t, s.CopyTo(got)) // the memory is not freed
	if got[10] != 0x3f800000 {
		t.Errorf("holds %#x", got[10])
	}
}

// TestPinned copies through pinned host memory, and pins a mapping. Unpin may be called twice.
func TestPinned(t *testing.T) {
	d := open(t, 0)
	h, err := cuda.AllocHost[int32](d, 1000)
	freeing(t, h, err)
	for i := range h.Data() {
		if h.Data()[i] != 0 {
			t.Fatal("not zero")
		}
		h.Data()[i] = int32(i)
	}
	st := closing(t, must(d.NewStream())(t), nil)
	s, err := cuda.Alloc[int32](d, 1000)
	freeing(t, s, err)
	back, err := cuda.AllocHost[int32](d, 1000)
	freeing(t, back, err)
	ok(t, s.CopyFromOn(st, h.Data()), s.CopyToOn(st, back.Data()), st.Synchronize())
	if !slices.Equal(h.Data(), back.Data()) {
		t.Error("came back different")
	}
	if p := must(h.DevicePointer())(t); p == 0 {
		t.Error("no address for the device")
	}

	mapped, err := syscall.Mmap(-1, 0, 1<<16, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	ok(t, err)
	pin := must(cuda.Pin(d, mapped))(t)
	ok(t, pin.Unpin(), pin.Unpin(), syscall.Munmap(mapped))
}

// TestOn copies plain Go memory in the order of a stream: when the call returns, the
// memory has been read or written.
func TestOn(t *testing.T) {
	d := open(t, 0)
	st := closing(t, must(d.NewStream())(t), nil)
	s, err := cuda.Alloc[int64](d, 500)
	freeing(t, s, err)
	in, out := make([]int64, 500), make([]int64, 500)
	for round := range 20 {
		for i := range in {
			in[i] = int64(i * round)
		}
		ok(t, s.CopyFromOn(st, in))
		clear(in)
		ok(t, s.CopyToOn(st, out))
		for i := range out {
			if out[i] != int64(i*round) {
				t.Fatalf("round %d: element %d is %d", round, i, out[i])
			}
		}
	}
}

// TestPool allocates from the default pool and from a pool, in the order of a stream. FreeOn and Free may be
// called more than once, and a closed pool refuses allocations.
func TestPool(t *testing.T) {
	d := open(t, 0)
	st := closing(t, must(d.NewStream())(t), nil)
	pool := closing(t, must(d.NewPool(1<<20))(t), nil)
	for _, p := range []*cuda.Pool{nil, pool} {
		for range 5 {
			s := must(cuda.AllocOn[float32](st, p, 1000))(t)
			out := make([]float32, 1000)
			ok(t, s.FillOn(st, 2.5), s.CopyToOn(st, out), s.FreeOn(st), s.FreeOn(st), s.Free())
			if out[999] != 2.5 {
				t.Errorf("holds %v", out[999])
			}
		}
	}
	s := must(cuda.AllocOn[float32](st, pool, 10))(t)
	ok(t, st.Synchronize(), s.Free(), pool.Trim(0))
	ok(t, pool.Close(), pool.Close())
	if _, err := cuda.AllocOn[float32](st, pool, 10); !errors.Is(err, cuda.ErrClosed) {
		t.Errorf("a closed pool: %v", err)
	}
	ok(t, st.Synchronize())
}

// TestBetweenDevices copies memory between two devices with peer access. Enabling or disabling the access
// twice is no error.
func TestBetweenDevices(t *testing.T) {
	a, b := open(t, 0), open(t, 1)
	if !must(a.CanAccess(b))(t) {
		t.Skip("the devices cannot reach each other")
	}
	ok(t, a.EnableAccess(b), a.EnableAccess(b))
	x, err := cuda.Alloc[int32](a, 10)
	freeing(t, x, err)
	y, err := cuda.Alloc[int32](b, 10)
	freeing(t, y, err)
	got := make([]int32, 10)
	ok(t, y.Fill(3), x.Copy(y), x.CopyTo(got))
	if got[9] != 3 {
		t.Errorf("holds %v", got)
	}
	ok(t, a.DisableAccess(b), a.DisableAccess(b))
}
