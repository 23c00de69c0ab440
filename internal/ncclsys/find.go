package ncclsys

import (
	"os"
	"path/filepath"
	"runtime"
)

// LibraryEnv names the environment variable that says which libnccl to load.
const LibraryEnv = "TUTTI_NCCL_LIBRARY"

const (
	soname = "libnccl.so.2"
	hint   = "install NCCL (for example pip install nvidia-nccl-cu12), or set " + LibraryEnv + " to the path of " + soname
)

// candidates are a named library alone, or the loader's own search, the wheels
// that PyTorch brings, and the folders where packages put it.
func candidates() []string {
	if path := os.Getenv(LibraryEnv); path != "" {
		return []string{path}
	}
	paths := append([]string{soname}, wheels()...)
	for _, prefix := range prefixes() {
		paths = append(paths, (&python{prefixes: []string{prefix}}).libraries()...)
	}
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	for _, dir := range []string{
		"/usr/lib/" + arch + "-linux-gnu", "/usr/lib64", "/usr/local/lib", "/usr/local/nccl/lib",
		"/usr/local/cuda/lib64", "/opt/nccl/lib",
	} {
		paths = append(paths, filepath.Join(dir, soname))
	}
	return paths
}

// prefixes are the folders under which other Pythons may have their packages.
func prefixes() []string { return []string{userBase(), "/usr/local", "/usr"} }
