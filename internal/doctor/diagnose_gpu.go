package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// missingCosts explains the effect of a function that NCCL lacks.
var missingCosts = map[string]string{
	"ncclAlltoAll":           "AllToAll, Gather and Scatter are built from Send and Recv",
	"ncclCommSplit":          "Split makes new communicators from scratch",
	"ncclMemAlloc":           "memory cannot be registered for zero-copy",
	"ncclCommWindowRegister": "there are no symmetric windows",
	"ncclCommShrink":         "Shrink makes a new communicator",
	"ncclCommRevoke":         "a communicator can be stopped only by aborting it",
}

// gpus diagnoses CUDA, and then the devices, NCCL and MPS. A machine without a GPU is ok.
func (f *Facts) gpus(l *list) {
	if !f.HasGPUs {
		l.ok("cuda", "not checked: this tutti was built without GPUs")
		return
	}
	g := &f.GPUs
	if f.GPUError != "" {
		l.fail("cuda", "update or remove the library that is at fault: LD_LIBRARY_PATH, TUTTI_CUDA_LIBRARY and TUTTI_NCCL_LIBRARY say which is found", "%s", f.GPUError)
		return
	}
	switch {
	case g.CUDAError != "" && f.DeviceFiles:
		l.fail("cuda", "install the driver's libraries, or start the container with GPUs (--gpus all)", "there is a GPU, but it cannot be used: %s", truncate(g.CUDAError))
	case g.CUDAError != "" && f.env("TUTTI_CUDA_LIBRARY") != "":
		l.fail("cuda", "correct or unset TUTTI_CUDA_LIBRARY", "%s", truncate(g.CUDAError))
	case g.CUDABroken:
		l.warn("cuda", "replace the library, or take it off LD_LIBRARY_PATH; without it the CPU engines are used", "a libcuda is there but cannot be used: %s", truncate(g.CUDAError))
	case g.CUDAError != "" && g.Library != "":
		l.warn("cuda", "start the container with GPUs, if it is to use them", "%s", g.CUDAError)
	case g.CUDAError != "":
		l.ok("cuda", "no NVIDIA GPU: the CPU engines are used")
	default:
		l.ok("cuda", "CUDA %s, %s (%s)", g.CUDA, count(len(g.Devices), "device"), g.Library)
	}
	f.devices(l)
	f.nccl(l)
	if len(g.Devices) > 0 {
		if f.MPS != "" {
			l.ok("mps", "the service runs in %s", f.MPS)
		} else {
			l.ok("mps", "not running; it is needed only where several ranks share one GPU (nvidia-cuda-mps-control -d)")
		}
	}
}

// devices adds a line for each GPU: its state, its free memory and the GPUs whose memory it
// reaches.
func (f *Facts) devices(l *list) {
	g := &f.GPUs
	for i, d := range g.Devices {
		area := fmt.Sprintf("gpu %d", i)
		text := fmt.Sprintf("%s, capability %s, %s of %s free, %s", d.Name, d.Capability, size(int(d.Free)), size(int(d.Total)), d.PCI)
		switch {
		case d.Error != "":
			l.fail(area, "nvidia-smi shows more; reset the GPU or leave it out with CUDA_VISIBLE_DEVICES", "%s %s", d.Name, d.Error)
		case d.Free < d.Total/10:
			l.warn(area, "nvidia-smi shows which processes use it", "%s: nearly full", text)
		case len(g.Devices) > 1 && len(d.Peers) == 0:
			l.warn(area, "check IOMMU and ACS settings, or nvidia-smi topo -m", "%s; it reaches no other GPU's memory, so that data goes through the host's", text)
		case len(g.Devices) > 1:
			l.ok(area, "%s; reaches the memory of %v", text, d.Peers)
		default:
			l.ok(area, "%s", text)
		}
	}
}

// nccl diagnoses the NCCL library. A library that cannot be used is a failure, a missing one only
// if there are GPUs. Functions that an old one lacks are a warning.
func (f *Facts) nccl(l *list) {
	g := &f.GPUs
	switch {
	case g.NCCLError != "" && g.NCCLBroken:
		l.fail("nccl", "replace the library, or name another one in TUTTI_NCCL_LIBRARY", "a libnccl is there but cannot be used: %s", truncate(g.NCCLError))
	case g.NCCLError != "" && f.env("TUTTI_NCCL_LIBRARY") != "":
		add := l.warn
		if len(g.Devices) > 0 {
			add = l.fail
		}
		add("nccl", "correct or unset TUTTI_NCCL_LIBRARY", "not found: there is no %s", f.env("TUTTI_NCCL_LIBRARY"))
	case g.NCCLError != "" && len(g.Devices) > 0:
		l.fail("nccl", "install NCCL (for example pip install nvidia-nccl-cu12), or name it in TUTTI_NCCL_LIBRARY", "not found: GPUs cannot be used for collectives")
	case g.NCCLError != "":
		l.ok("nccl", "not found; it is not needed without GPUs")
	default:
		var cost []string
		for _, m := range g.Missing {
			if c := missingCosts[m.Function]; c != "" {
				cost = append(cost, fmt.Sprintf("%s (needs %s)", c, m.Since))
			}
		}
		text := fmt.Sprintf("%s (%s)", g.NCCL, g.NCCLPath)
		if len(cost) > 0 {
			slices.Sort(cost)
			l.warn("nccl", "a newer NCCL has it", "%s lacks %s: %s", text, count(len(g.Missing), "call"), strings.Join(cost, "; "))
		} else {
			l.ok("nccl", "%s, %s missing that cost nothing", text, count(len(g.Missing), "call"))
		}
	}
	for _, path := range g.Others {
		what := "another libnccl"
		if strings.Contains(path, "nvidia/nccl") {
			what = "PyTorch's own libnccl"
		}
		l.ok("nccl", "%s: %s", what, path)
	}
}

func (f *Facts) env(name string) string {
	for _, e := range f.Env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// truncate shortens an error text that lists every path that was tried.
func truncate(text string) string {
	const most = 240
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
