package nccl

import (
	"encoding/binary"
	"math"

	"github.com/tutti-go/tutti/internal/kernel"
)

// An Op is a reduction operation, as ncclRedOp_t. Its zero value is not an operation.
type Op struct {
	code int      // the ncclRedOp_t plus one
	comm *Comm    // of an operation of PreMulSum; else nil
	t    DataType // of an operation of PreMulSum
}

// The reduction operations; see also Comm.PreMulSum. They must not be assigned to. They
// compute what NCCL computes: on integers, Avg divides the sum, which may have wrapped.
// Package tutti refuses Avg and PreMul of integers.
var (
	Sum  = Op{code: 1}
	Prod = Op{code: 2}
	Max  = Op{code: 3}
	Min  = Op{code: 4}
	Avg  = Op{code: 5}
)

// String returns the operation's name, such as "sum".
func (o Op) String() string {
	if names := [...]string{"no operation", "sum", "prod", "max", "min", "avg"}; o.code < len(names) {
		return names[o.code]
	}
	return "premulsum"
}

// check returns an error if the operation cannot reduce elements of type t on c.
func (o Op) check(c *Comm, t DataType) error {
	if o.code != 0 && o.comm == nil && t < Float8E4M3 {
		return nil
	}
	return o.checkAll(c, t)
}

// checkAll is the slow path of check.
func (o Op) checkAll(c *Comm, t DataType) error {
	switch {
	case o.code == 0:
		return invalid("no operation")
	case o.comm != nil && o.comm != c:
		return invalid("the operation was made for another communicator")
	case o.comm != nil && o.t != t:
		return invalid("the operation was made for %v, not %v", o.t, t)
	case o.comm != nil && !c.hasOp(o.code):
		return invalid("the operation has been freed")
	case t >= Float8E4M3 && c.major < 9:
		return invalid("reducing %v needs compute capability 9, %v has %d", t, c.dev, c.major)
	}
	return nil
}

// PreMulSum makes an operation that multiplies this rank's elements by x before the sum.
// The factor may differ between ranks. The caller frees the operation with FreeOp;
// closing the communicator frees it too.
func (c *Comm) PreMulSum(t DataType, x float64) (Op, error) {
	value, err := scalar(t, x)
	if err != nil {
		return Op{}, err
	}
	return c.newOp(t, value, 0)
}

// PreMulSumAt is PreMulSum with a factor in device memory, one element, which NCCL reads
// when the collective runs.
func (c *Comm) PreMulSumAt(b Buffer) (Op, error) {
	if err := b.check("factor", c); err != nil {
		return Op{}, err
	}
	if b.n != 1 {
		return Op{}, invalid("the factor has %d elements, not one", b.n)
	}
	return c.newOp(b.t, nil, b.ptr)
}

// newOp makes an operator that multiplies by value, or by the factor at addr in device memory. It takes the
// communicator for the call. c.mu guards the list of live operators, c.ops.
func (c *Comm) newOp(t DataType, value *[8]byte, addr uintptr) (Op, error) {
	u, err := c.acquireInContext("PreMulSum")
	if err != nil {
		return Op{}, err
	}
	defer c.release(u)
	code, err := c.lib.sys.RedOpCreate(value, addr, t.code(), c.handle())
	if err != nil {
		return Op{}, public(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ops == nil {
		c.ops = map[int]bool{}
	}
	c.ops[code+1] = true
	return Op{code: code + 1, comm: c, t: t}, nil
}

func (c *Comm) hasOp(code int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ops[code]
}

// FreeOp frees an operation of PreMulSum. Collectives that were started with it are not
// affected. Further calls for the same operation do nothing.
func (c *Comm) FreeOp(o Op) error {
	if o.comm == nil {
		return nil
	}
	if o.comm != c {
		return invalid("the operation was made for another communicator")
	}
	c.mu.Lock()
	there := c.ops[o.code]
	delete(c.ops, o.code)
	c.mu.Unlock()
	if !there {
		return nil
	}
	u, err := c.acquireInContext("FreeOp")
	if err != nil {
		return ignoreEnded(err)
	}
	defer c.release(u)
	return public(c.lib.sys.RedOpDestroy(o.code-1, c.handle()))
}

// scalar encodes x as an element of type t. It returns ErrInvalid if an integer type cannot represent x, or
// if the type has no encoding on the host.
func scalar(t DataType, x float64) (*[8]byte, error) {
	b := new([8]byte)
	whole := x == math.Trunc(x)
	fits := func(low, high float64) bool { return whole && x >= low && x < high }
	var ok bool
	switch t {
	case Int8:
		b[0], ok = byte(int8(x)), fits(-1<<7, 1<<7)
	case Uint8:
		b[0], ok = byte(x), fits(0, 1<<8)
	case Int32:
		ok = fits(-1<<31, 1<<31)
		binary.NativeEndian.PutUint32(b[:], uint32(int32(x)))
	case Uint32:
		ok = fits(0, 1<<32)
		binary.NativeEndian.PutUint32(b[:], uint32(x))
	case Int64:
		ok = fits(-1<<63, 1<<63)
		binary.NativeEndian.PutUint64(b[:], uint64(int64(x)))
	case Uint64:
		ok = fits(0, 1<<64)
		binary.NativeEndian.PutUint64(b[:], uint64(x))
	case Float16:
		ok = true
		binary.NativeEndian.PutUint16(b[:], kernel.Float32ToFloat16(float32(x)))
	case BFloat16:
		ok = true
		binary.NativeEndian.PutUint16(b[:], kernel.Float32ToBFloat16(float32(x)))
	case Float32:
		ok = true
		binary.NativeEndian.PutUint32(b[:], math.Float32bits(float32(x)))
	case Float64:
		ok = true
		binary.NativeEndian.PutUint64(b[:], math.Float64bits(x))
	default:
		return nil, invalid("a factor for %v must be in device memory: see PreMulSumAt", t)
	}
	if !ok {
		return nil, invalid("the factor %v is not a value of %v", x, t)
	}
	return b, nil
}
