// Package kernel does the arithmetic of collectives. It reduces, scales and copies contiguous
// elements, with vector instructions where the processor has them.
//
// # Arguments
//
// Pointers address n consecutive elements with the natural alignment of the element type. dst
// may equal a or b; the caller must not pass buffers that overlap otherwise, nor invalid types
// or operations, nor And, Or and Xor of floats. n may be zero. No function allocates, but arguments escape: the
// memory must not be on a stack.
//
// # Results
//
// Results are defined to the bit. Every path (generic Go, AVX2, NEON) computes the same
// bits:
//
//   - Integers wrap around (two's complement). And, Or and Xor combine their bits.
//   - float32 and float64 follow IEEE 754, round to nearest, ties to even. Each
//     elementary operation is rounded to the type; nothing is fused.
//   - float16 and bfloat16 are computed in float32 and rounded to the type (to
//     nearest, ties to even) after each elementary operation, so that ScaleAdd
//     rounds its product to the type and then its sum.
//   - Subnormal numbers are kept, as inputs and as results.
//   - A NaN result is the canonical quiet NaN of its type,
//     whatever the sign and payload of the inputs: 0x7E00 (float16), 0x7FC0
//     (bfloat16), 0x7FC00000 (float32), 0x7FF8000000000000 (float64).
//   - Min and Max of floats give NaN if either input is one, and order -0
//     before +0.
//   - The factor x of Scale and ScaleAdd is first converted: to float32 for
//     float16, bfloat16 and float32; for integers it is truncated toward zero
//     and wrapped to the type (infinities and NaN count as 0).
//
// # Preemption
//
// Assembly and memmove cannot be preempted, and the garbage collector has to
// wait for them. All functions therefore work in pieces of at most 64 KiB of
// destination, with a preemption point before each.
//
// # Paths
//
// The path is chosen at the first call: the best one that the processor supports, or the one
// that the environment variable TUTTI_KERNEL names (generic, avx2 or neon). A path that this
// processor does not support is ignored. A Comm refuses
// other names.
//
// AVX2 has all reductions, and the scaling of floats. NEON has the floats. The rest, such as
// the scaling of integers, is generic.
//
// The assembly for amd64 is written by the generator in gen. To check that it
// is current:
//
//	go generate ./internal/kernel
//	git diff --exit-code -- internal/kernel/zz_amd64.s internal/kernel/zz_amd64.go
package kernel

//go:generate go -C gen run . -out ../zz_amd64.s -stubs ../zz_amd64.go -pkg kernel
