package card

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/dl"
	"github.com/tutti-go/tutti/internal/doctor"
	"github.com/tutti-go/tutti/internal/ncclsys"
)

// Look looks at the machine by loading its libraries, which may do anything: it is
// for a process of its own.
func Look() (g doctor.GPUs) {
	lookAtCUDA(&g)
	lib, err := ncclsys.Load("")
	if err != nil {
		g.NCCLError, g.NCCLBroken = broken(err)
	} else {
		g.NCCL, g.NCCLPath = lib.VersionText(), mapped(lib.Path())
		for _, m := range lib.Missing() {
			g.Missing = append(g.Missing, doctor.Lack(m))
		}
	}
	if none := new(dl.NotFoundError); !errors.As(err, &none) {
		// The first that could be loaded, whatever it was good for. If none could, all
		// have been tried.
		g.Others = others(mapped(ncclsys.Candidates()[0]))
	}
	return g
}

// others are libraries beside the one that was loaded.
func others(loaded string) (list []string) {
	used, err := os.Stat(loaded)
	if err != nil {
		return nil
	}
	for _, path := range ncclsys.Candidates() {
		if !strings.Contains(path, "/") {
			continue // the loader's own search
		}
		if info, err := os.Stat(path); err == nil && !os.SameFile(info, used) {
			list = append(list, path)
		}
	}
	return list
}

func lookAtCUDA(g *doctor.GPUs) {
	fail := func(err error) { g.CUDAError = err.Error() }
	version, path, err := cuda.Version()
	var none *dl.NotFoundError
	switch {
	case errors.As(err, &none):
		g.CUDAError, g.CUDABroken = broken(err)
		return
	case err != nil:
		fail(err)
		return
	}
	g.CUDA, g.Library = fmt.Sprintf("%d.%d", version/1000, version%1000/10), mapped(path)
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
			g.Devices = append(g.Devices, doctor.GPU{Error: err.Error()})
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

func describe(dev *cuda.Device) (d doctor.GPU) {
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
