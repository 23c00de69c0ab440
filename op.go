package tutti

import (
	"fmt"

	"github.com/tutti-go/tutti/internal/engine"
)

// An Op is a reduction operator. Its zero value is no operator.
type Op struct {
	red   engine.ReduceOp
	scale float64
}

// The operations; see also PreMul. Programs must not assign to them. Avg takes
// floating-point elements. An average of integers returns ErrInvalid, because the
// sum may overflow the type where the average does not. And, Or and Xor combine the
// bits of integer elements; with floating-point elements they return ErrInvalid.
var (
	Sum  = Op{red: engine.Sum}
	Prod = Op{red: engine.Prod}
	Min  = Op{red: engine.Min}
	Max  = Op{red: engine.Max}
	Avg  = Op{red: engine.Avg}
	And  = Op{red: engine.And}
	Or   = Op{red: engine.Or}
	Xor  = Op{red: engine.Xor}
)

// PreMul multiplies each element by x before the sum. Ranks may pass different
// factors. It takes floating-point elements; with integers it returns ErrInvalid.
func PreMul(x float64) Op { return Op{engine.PreMul, x} }

// String returns the operation's name, such as "sum" or "premul(0.5)".
func (o Op) String() string {
	if o.red.Info().Scaling == engine.ByFactor {
		return fmt.Sprintf("%v(%v)", o.red, o.scale)
	}
	return o.red.String()
}
