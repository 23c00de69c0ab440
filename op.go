package tutti

import (
	"fmt"

	"github.com/tutti-go/tutti/internal/engine"
)

// An Op says how elements are combined. Its zero value is no operation.
type Op struct {
	red   engine.Red
	scale float64
}

// The operations. They are not to be assigned to; see also PreMul. Avg is for
// floating-point elements: an average of integers is ErrInvalid, because the sum
// may overflow the type although the average does not.
var (
	Sum  = Op{red: engine.Sum}
	Prod = Op{red: engine.Prod}
	Min  = Op{red: engine.Min}
	Max  = Op{red: engine.Max}
	Avg  = Op{red: engine.Avg}
)

// PreMul multiplies each element by x before the sum. Ranks may have different
// factors. It is for floating-point elements; integers are ErrInvalid.
func PreMul(x float64) Op { return Op{engine.PreMul, x} }

// String returns the operation's name, such as "sum".
func (o Op) String() string {
	if o.red == engine.PreMul {
		return fmt.Sprintf("premul(%v)", o.scale)
	}
	return o.red.String()
}
