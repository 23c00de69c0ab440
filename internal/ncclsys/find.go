package ncclsys

import (
	"os"
	"path/filepath"
	"runtime"
)

// LibraryEnv is the environment variable with the path of the libnccl to load.
const LibraryEnv = "TUTTI_NCCL_LIBRARY"

const (
	soname = "libnccl.so.2"
	hint   = "install NCCL (for example pip install nvidia-nccl-cu12), or set " + LibraryEnv + " to the path of " + soname
)

// candidates returns the paths to try: only LibraryEnv if it is set, else the dynamic loader's
// own search, PyTorch's wheels, and the folders that packages use.
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

// prefixes are folders in which other Python installations may have packages.
func prefixes() []string { return []string{userBase(), "/usr/local", "/usr"} }
