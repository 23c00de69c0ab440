package kernel_test

import (
	"fmt"
	"unsafe"

	"github.com/tutti-go/tutti/internal/kernel"
)

func ExampleReduce() {
	sum := []float32{1, 2, 3}
	next := []float32{10, 20, 30}
	p := unsafe.Pointer(&sum[0])
	kernel.Reduce(p, p, unsafe.Pointer(&next[0]), len(sum), kernel.Float32, kernel.Sum)
	fmt.Println(sum)
	// Output: [11 22 33]
}
