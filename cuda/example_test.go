package cuda_test

import (
	"fmt"

	"github.com/tutti-go/tutti/cuda"
)

func Example() {
	dev, err := cuda.Open(0, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close()
	x, err := cuda.Alloc[float32](dev, 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer x.Free() //nolint:errcheck // nothing depends on it any more
	numbers := make([]float32, 4)
	if err := x.Fill(1.5); err == nil {
		err = x.CopyTo(numbers)
		fmt.Println(numbers, err)
	}
	// Output: [1.5 1.5 1.5 1.5] <nil>
}
