package fakegpu

import (
	"errors"
	"fmt"
	"os"
)

// RealEnv is the environment variable by which tests are told to use the real
// libraries, on a machine with a GPU.
const RealEnv = "TUTTI_TEST_GPU"

// Use makes this process, and those that it starts, load the fake GPU in the
// form of the newest version, and returns its control. With RealEnv set it does
// nothing and returns no control: tests that need one skip. A program that
// started this one may have chosen the libraries already.
func Use() (*Control, error) {
	if os.Getenv(RealEnv) != "" {
		return nil, nil
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

// Main is a TestMain on the libraries that Use chooses: it sets control, runs
// the tests and returns the code to exit with. Where nothing can be compiled it
// says so, and that is no failure.
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
