package gpu

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/dl"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// A twin is an engine that carries out operations on host memory in device memory: it copies all
// buffers of a call to the device, and back.
type twin struct {
	engine.Engine
	gpu   *Engine
	arena *cuda.Slice[byte]

	mu    sync.Mutex                  // guards the fields below
	post  *cuda.Slice[byte]           // memory for messages
	used  int                         // bytes of post
	moved map[*engine.Message]*parcel // by the message of the suite
}

// A parcel is a message of device memory that replaces a message of the suite.
type parcel struct {
	m    engine.Message
	host []byte
	at   *cuda.Slice[byte]
	err  error
}

func newTwin(e *Engine) *twin {
	return &twin{Engine: e, gpu: e, moved: map[*engine.Message]*parcel{}}
}

// room is the size in bytes of the memory for messages that are under way at once, and little that
// of the memory for small operations. They avoid allocations while messages are under way: an
// allocation may wait for the device, and so for another rank.
const (
	room   = 4 << 20
	little = 256 << 10
)

// Post copies the message to device memory and posts that copy. Host staging has no messages, so then the CPU
// engine takes the message as it is. Errors are kept for Finish. w.mu guards the map of messages and the
// memory for them.
func (w *twin) Post(msgs ...*engine.Message) {
	for _, m := range msgs {
		w.postCopy(m)
	}
}

func (w *twin) postCopy(m *engine.Message) {
	if w.gpu.stage != nil { // only collectives are staged
		w.Engine.Post(m)
		return
	}
	w.mu.Lock()
	p := &parcel{host: unsafe.Slice((*byte)(m.Mem.Ptr), m.Mem.Bytes())}
	p.m = engine.Message{Send: m.Send, Peer: m.Peer, Tag: m.Tag, Seq: m.Seq, Mem: m.Mem}
	p.at, p.err = w.take(len(p.host))
	if p.err == nil && len(p.host) > 0 {
		p.m.Mem.Ptr = dl.Pointer(p.at.Pointer())
		p.err = p.at.CopyFrom(p.host)
	}
	p.m.Mem.Device = int16(w.gpu.dev.Ordinal() + 1)
	w.moved[m] = p
	w.mu.Unlock()
	if p.err == nil {
		p.err = w.gpu.AdmitMessage(&p.m)
	}
	if p.err == nil {
		w.Engine.Post(&p.m)
	}
}

// take returns device memory for a message.
func (w *twin) take(n int) (*cuda.Slice[byte], error) {
	if w.post == nil {
		var err error
		if w.post, err = cuda.Alloc[byte](w.gpu.dev, room); err != nil {
			return nil, err
		}
	}
	if len(w.moved) == 0 {
		w.used = 0
	}
	from := w.used
	w.used += (n + 7) / 8 * 8
	return w.post.Slice(from, from+n)
}

// Finish waits for the message's copy on the device and copies received data back. It returns the error of
// Post, if there was one. It may run concurrently with Post and Finish of other messages.
func (w *twin) Finish(ctx context.Context, m *engine.Message) error {
	if w.gpu.stage != nil {
		return w.Engine.Finish(ctx, m)
	}
	w.mu.Lock()
	p := w.moved[m]
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.moved, m)
		w.mu.Unlock()
	}()
	if p.err != nil {
		return p.err
	}
	if err := w.Engine.Finish(ctx, &p.m); err != nil || m.Send || len(p.host) == 0 {
		return err
	}
	return p.at.CopyTo(p.host)
}

// border is the number of bytes around each piece of memory that must not change.
const border = 32

// A piece is host memory and where it is on the device.
type piece struct {
	host []byte
	at   int // in the arena
}

// Run copies all memory of the calls to one block of device memory, runs the calls there, and copies the
// block back. It returns an error if bytes outside of the buffers changed. One goroutine at a time calls it.
func (w *twin) Run(ctx context.Context, seq uint64, calls []engine.Call) error {
	if len(calls) > 0 && calls[0].Verb > engine.Barrier {
		return w.Engine.Run(ctx, seq, calls)
	}
	moved := slices.Clone(calls)
	var mems []*engine.Mem
	for i := range moved {
		c := &moved[i]
		c.DstParts, c.SrcParts = slices.Clone(c.DstParts), slices.Clone(c.SrcParts)
		c.Memories(func(m *engine.Mem) { mems = append(mems, m) })
	}
	pieces, size := layOut(mems)
	image := bytes.Repeat([]byte{0xB7}, size)
	for _, p := range pieces {
		copy(image[p.at:], p.host)
	}
	if err := w.upload(image); err != nil {
		return err
	}
	want := slices.Clone(image)
	for _, m := range mems {
		w.move(m, pieces)
	}
	for i := range moved {
		if err := w.gpu.Admit(&moved[i]); err != nil {
			return fmt.Errorf("%s is not admitted: %w", moved[i].Op(), err)
		}
	}
	if err := w.Engine.Run(ctx, seq, moved); err != nil {
		return err
	}
	part, err := w.arena.Slice(0, size)
	if err == nil {
		err = part.CopyTo(image)
	}
	if err != nil {
		return err
	}
	for _, p := range pieces {
		copy(p.host, image[p.at:])
		copy(want[p.at:p.at+len(p.host)], p.host)
	}
	if !bytes.Equal(image, want) {
		return errors.New("device memory beside a buffer was written")
	}
	return nil
}

// layOut assigns every piece of host memory a place in the arena. Overlapping buffers are one
// piece, and overlap in the arena in the same way.
func layOut(mems []*engine.Mem) (pieces []piece, size int) {
	order := slices.Clone(mems)
	slices.SortStableFunc(order, func(a, b *engine.Mem) int { return cmp.Compare(uintptr(a.Ptr), uintptr(b.Ptr)) })
	for _, m := range order {
		if m.Bytes() == 0 {
			continue
		}
		if n := len(pieces) - 1; n >= 0 {
			host := &pieces[n].host
			if off := uintptr(m.Ptr) - uintptr(unsafe.Pointer(unsafe.SliceData(*host))); off < uintptr(len(*host)) {
				*host = unsafe.Slice(unsafe.SliceData(*host), max(len(*host), int(off)+m.Bytes()))
				continue
			}
		}
		pieces = append(pieces, piece{host: unsafe.Slice((*byte)(m.Ptr), m.Bytes())})
	}
	size = border
	for i := range pieces {
		p := &pieces[i]
		// Aligned as on the host modulo 8: enough for the elements and no more.
		p.at = size + int(uintptr(unsafe.Pointer(unsafe.SliceData(p.host)))%8)
		size = (p.at+len(p.host)+7)/8*8 + border
	}
	return pieces, size
}

// find returns the offset of memory in the arena, or -1.
func find(m *engine.Mem, pieces []piece) int {
	for _, p := range pieces {
		off := uintptr(m.Ptr) - uintptr(unsafe.Pointer(unsafe.SliceData(p.host)))
		if off+uintptr(m.Bytes()) <= uintptr(len(p.host)) && off < uintptr(len(p.host)) {
			return p.at + int(off)
		}
	}
	return -1
}

// move replaces host memory with its copy in the arena.
func (w *twin) move(m *engine.Mem, pieces []piece) {
	if m.Nothing() {
		return
	}
	m.Device = int16(w.gpu.dev.Ordinal() + 1)
	if m.Bytes() == 0 {
		m.Ptr = nil
		return
	}
	m.Ptr = dl.Pointer(w.arena.Pointer() + uintptr(find(m, pieces)))
}

// upload copies image to the beginning of w.arena, which it replaces by a larger one if needed. Only Run
// calls it.
func (w *twin) upload(image []byte) error {
	if w.arena == nil || w.arena.Len() < len(image) {
		if w.arena != nil {
			if err := w.arena.Free(); err != nil {
				return err
			}
		}
		var err error
		if w.arena, err = cuda.Alloc[byte](w.gpu.dev, max(2*len(image), little)); err != nil {
			return err
		}
	}
	part, err := w.arena.Slice(0, len(image))
	if err != nil {
		return err
	}
	return part.CopyFrom(image)
}

func (w *twin) Sub(ctx context.Context, seq uint64, members []int) (engine.Engine, error) {
	e, err := w.Engine.Sub(ctx, seq, members)
	if err != nil {
		return nil, err
	}
	return newTwin(e.(*Engine)), nil
}

func (w *twin) Close() error {
	var errs []error
	for _, s := range []*cuda.Slice[byte]{w.arena, w.post} {
		if s != nil {
			errs = append(errs, s.Free())
		}
	}
	return errors.Join(append(errs, w.Engine.Close())...)
}

// deviceMem describes a slice to the engine.
func deviceMem(e *Engine, x *cuda.Slice[float32]) engine.Mem {
	return engine.Mem{Ptr: dl.Pointer(x.Pointer()), N: x.Len(), Type: kernel.Float32, Device: int16(e.dev.Ordinal() + 1)}
}
