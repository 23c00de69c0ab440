package card

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/ncclsys"
)

// GPUs is what a machine has, as JSON. An empty error means that it is well.
type GPUs struct {
	CUDAError string
	CUDA      string // the version that the driver supports
	Library   string
	Devices   []GPU
	NCCLError string
	NCCL      string
	NCCLPath  string
	Missing   []ncclsys.Lack
	// Others are further libraries that were found, such as PyTorch's own.
	Others []string
}

// A GPU is one device.
type GPU struct {
	Name       string
	PCI        string
	Capability string
	Free       uint64
	Total      uint64
	Peers      []int // whose memory it can reach
	Error      string
}

// Usable returns how many GPUs can be used, with NCCL or without it, or why none
// can.
func (g *GPUs) Usable(withNCCL bool) (int, error) {
	switch {
	case g.CUDAError != "":
		return 0, errors.New(g.CUDAError)
	case withNCCL && g.NCCLError != "":
		return 0, errors.New(g.NCCLError)
	}
	return len(g.Devices), nil
}

// Look looks at the machine by loading its libraries, which may do anything: it is
// for a process of its own.
func Look() (g GPUs) {
	g.look()
	lib, err := ncclsys.Load("")
	if err != nil {
		g.NCCLError = err.Error()
	} else {
		g.NCCL, g.NCCLPath, g.Missing = lib.VersionText(), lib.Path(), lib.Missing()
	}
	for _, path := range ncclsys.Candidates() {
		if _, err := os.Stat(path); err == nil && path != g.NCCLPath && strings.Contains(path, "/") {
			g.Others = append(g.Others, path)
		}
	}
	return g
}

func (g *GPUs) look() {
	fail := func(err error) { g.CUDAError = err.Error() }
	version, path, err := cuda.Version()
	if err != nil {
		fail(err)
		return
	}
	g.CUDA, g.Library = fmt.Sprintf("%d.%d", version/1000, version%1000/10), path
	if err := cuda.Available(); err != nil {
		fail(err)
		return
	}
	n, err := cuda.Devices()
	if err != nil {
		fail(err)
		return
	}
	var open []*cuda.Device
	for i := range n {
		dev, err := cuda.Open(i, nil)
		if err != nil {
			g.Devices = append(g.Devices, GPU{Error: err.Error()})
			open = append(open, nil)
			continue
		}
		defer dev.Close()
		open = append(open, dev)
		g.Devices = append(g.Devices, describe(dev))
	}
	for i, a := range open {
		for j, b := range open {
			if a == nil || b == nil || i == j {
				continue
			}
			if can, err := a.CanAccess(b); err == nil && can {
				g.Devices[i].Peers = append(g.Devices[i].Peers, j)
			}
		}
	}
}

func describe(dev *cuda.Device) (d GPU) {
	var err error
	note := func(e error) {
		if e != nil && d.Error == "" {
			d.Error = e.Error()
		}
	}
	d.Name, err = dev.Name()
	note(err)
	d.PCI, err = dev.PCIBusID()
	note(err)
	major, minor, err := dev.Capability()
	note(err)
	d.Capability = fmt.Sprintf("%d.%d", major, minor)
	d.Free, d.Total, err = dev.Memory()
	note(err)
	return d
}
