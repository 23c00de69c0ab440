package gpuprobe

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

// Probe examines the GPUs by loading CUDA and NCCL. A broken library may crash the
// process, so Probe should run in a process of its own.
func Probe() (g doctor.GPUs) {
	probeCUDA(&g)
	lib, err := ncclsys.Load("")
	if err != nil {
		g.NCCLError, g.NCCLBroken = loadError(err)
	} else {
		g.NCCL, g.NCCLPath = lib.VersionText(), mappedPath(lib.Path())
		for _, m := range lib.Missing() {
			g.Missing = append(g.Missing, doctor.MissingFunction(m))
		}
	}
	if none := new(dl.NotFoundError); !errors.As(err, &none) {
		// Candidates()[0] is the library that the loader found first, even if it is
		// unusable. If none could be loaded, all were tried.
		g.Others = otherLibraries(mappedPath(ncclsys.Candidates()[0]))
	}
	return g
}

// otherLibraries returns the NCCL libraries that were not loaded.
func otherLibraries(loaded string) (list []string) {
	used, err := os.Stat(loaded)
	if err != nil {
		return nil
	}
	for _, path := range ncclsys.Candidates() {
		if !strings.Contains(path, "/") {
			continue // found by the loader's own search
		}
		if info, err := os.Stat(path); err == nil && !os.SameFile(info, used) {
			list = append(list, path)
		}
	}
	return list
}

// probeCUDA fills in the facts about CUDA and the devices. It stops at the first failure of CUDA
// itself, which it stores in g; a device that cannot be opened has an Error of its own.
func probeCUDA(g *doctor.GPUs) {
	fail := func(err error) { g.CUDAError = err.Error() }
	version, path, err := cuda.Version()
	var none *dl.NotFoundError
	switch {
	case errors.As(err, &none):
		g.CUDAError, g.CUDABroken = loadError(err)
		return
	case err != nil:
		fail(err)
		return
	}
	g.CUDA, g.Library = fmt.Sprintf("%d.%d", version/1000, version%1000/10), mappedPath(path)
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
		g.Devices = append(g.Devices, describeDevice(dev))
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

// describeDevice queries an open device. Error is the first query that fails; the other fields are
// still filled in.
func describeDevice(dev *cuda.Device) (d doctor.GPU) {
	var err error
	keepFirst := func(e error) {
		if e != nil && d.Error == "" {
			d.Error = e.Error()
		}
	}
	d.Name, err = dev.Name()
	keepFirst(err)
	d.PCI, err = dev.PCIBusID()
	keepFirst(err)
	major, minor, err := dev.Capability()
	keepFirst(err)
	d.Capability = fmt.Sprintf("%d.%d", major, minor)
	d.Free, d.Total, err = dev.Memory()
	keepFirst(err)
	return d
}
