package cuda

import (
	"errors"
	"os"
	"sync"

	"github.com/tutti-go/tutti/internal/cudasys"
)

// The process has one driver. load loads its library; used also initialises it, when
// the first device is opened.
var (
	load        = sync.OnceValues(cudasys.Load)
	loadAndInit = sync.OnceValues(func() (*cudasys.Driver, error) {
		d, err := load()
		if err != nil {
			return nil, err
		}
		return d, d.Init()
	})
)

// deviceNodes lists device files. At least one of them exists where there is a GPU.
var deviceNodes = []string{"/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/nvhost-ctrl", "/dev/nvgpu"}

// Available returns nil if the driver's library can be loaded and a device file exists.
// It does not initialise CUDA, which would allocate memory and install signal handlers,
// so a later call of Devices or Open can still fail.
//
// The environment variable TUTTI_CUDA_LIBRARY names the library to load. With it,
// Available does not look for a device file.
func Available() error {
	if _, err := load(); err != nil {
		return public(err)
	}
	if os.Getenv(cudasys.LibraryEnv) != "" {
		return nil
	}
	for _, path := range deviceNodes {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
	}
	return errNoDevice
}

var errNoDevice = errors.New("cuda: the driver is installed, but this system shows no GPU (no /dev/nvidiactl): " +
	"in a container, it must be started with GPUs")

// driver returns the initialised driver.
func driver() (*cudasys.Driver, error) {
	d, err := loadAndInit()
	return d, public(err)
}

// Devices returns the number of devices.
func Devices() (int, error) {
	d, err := driver()
	if err != nil {
		return 0, err
	}
	n, err := d.DeviceCount()
	return n, public(err)
}

// Version returns the latest CUDA version that the driver supports, as
// 1000*major + 10*minor, and the path of the driver's library.
func Version() (version int, library string, err error) {
	d, err := load()
	if err != nil {
		return 0, "", public(err)
	}
	version, err = d.Version()
	return version, d.Path(), public(err)
}
