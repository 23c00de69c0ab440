package doctor

import (
	"runtime"

	"golang.org/x/sys/cpu"
)

// features lists the CPU features that the reduction kernels may use.
func features() (list []string) {
	add := func(has bool, name string) {
		if has {
			list = append(list, name)
		}
	}
	switch runtime.GOARCH {
	case "amd64":
		add(cpu.X86.HasAVX2, "avx2")
		add(cpu.X86.HasF16C, "f16c")
		add(cpu.X86.HasAVX512F, "avx512f")
		add(cpu.X86.HasAVX512BF16, "avx512bf16")
	case "arm64":
		add(cpu.ARM64.HasASIMD, "neon")
		add(cpu.ARM64.HasSVE, "sve")
		add(cpu.ARM64.HasASIMDHP, "fp16")
	}
	return list
}
