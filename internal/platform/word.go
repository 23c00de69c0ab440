//go:build 386 || arm || mips || mipsle

package platform

// Words of shared memory and element counts have 64 bits.
var _ int = "tutti needs a 64-bit platform; build with GOARCH=amd64 or GOARCH=arm64"
