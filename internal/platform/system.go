//go:build !unix

package platform

// The network code needs poll(2) and unix sockets.
var _ int = "tutti needs Linux or macOS (on Windows: WSL)"
