package fakegpu

import (
	"errors"
	"fmt"
	"os"

	"github.com/tutti-go/tutti/internal/envvar"
)

// RealEnv is the environment variable that makes tests use the real libraries, on a machine
// with a GPU.
const RealEnv = "TUTTI_TEST_GPU"

// Real reports whether tests use the real libraries.
func Real() (bool, error) { return envvar.Bool(os.Getenv, RealEnv) }

// Use makes this process and its children load the fake libraries of the newest version, and
// returns their control. It does not change libraries that a parent process has chosen. With
// RealEnv=1 it does nothing and returns nil; tests that need the control skip then.
func Use() (*Control, error) {
	if isReal, err := Real(); isReal || err != nil {
		return nil, err
	}
	libs, err := Build(Newest)
	if err != nil {
		return nil, err
	}
	for name, path := range map[string]string{"TUTTI_CUDA_LIBRARY": libs.CUDA, "TUTTI_NCCL_LIBRARY": libs.NCCL} {
		if os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, path); err != nil {
			return nil, fmt.Errorf("choosing the fake GPU: %w", err)
		}
	}
	return NewControl(os.Getenv("TUTTI_CUDA_LIBRARY"))
}

// Main is a TestMain: it calls Use, sets control, runs the tests, and returns the exit code. If
// there is no C compiler, it prints so and returns 0.
func Main(control **Control, run func() int) int {
	c, err := Use()
	switch {
	case errors.Is(err, ErrNoCompiler):
		fmt.Println("skipped:", err)
		return 0
	case err != nil:
		fmt.Println(err)
		return 1
	}
	*control = c
	return run()
}
