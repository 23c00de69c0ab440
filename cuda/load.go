package cuda

import (
	"errors"
	"os"
	"sync"

	"github.com/tutti-go/tutti/internal/cudasys"
)

// A process has one driver, however often it is asked for. It is loaded when it
// is first needed, and initialised when a device is.
var (
	load = sync.OnceValues(cudasys.Load)
	used = sync.OnceValues(func() (*cudasys.Driver, error) {
		d, err := load()
		if err != nil {
			return nil, err
		}
		return d, d.Init()
	})
)

// deviceNodes are files of which one is there where a driver has a device.
var deviceNodes = []string{"/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/nvhost-ctrl", "/dev/nvgpu"}

// Available returns nil where it is worth trying to use CUDA: the driver's library
// can be loaded, and there is a device file. It does not initialise CUDA, which
// would take memory and signal handlers; Devices has the last word.
//
// The environment variable TUTTI_CUDA_LIBRARY names the library to load, whether
// there is a device file or not.
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
	d, err := used()
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

// Version returns the newest version of CUDA that the driver supports, as
// 1000*major + 10*minor, and the path of its library.
func Version() (version int, library string, err error) {
	d, err := load()
	if err != nil {
		return 0, "", public(err)
	}
	version, err = d.Version()
	return version, d.Path(), public(err)
}
