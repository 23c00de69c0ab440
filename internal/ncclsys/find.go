package ncclsys

import (
	"os"
	"os/exec"
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
	paths := []string{soname}
	for _, prefix := range prefixes() {
		for _, packages := range []string{"lib/python3*/site-packages", "lib/python3*/dist-packages", "lib/python3/dist-packages"} {
			found, _ := filepath.Glob(filepath.Join(prefix, packages, "nvidia/nccl/lib", soname))
			paths = append(paths, found...)
		}
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

// prefixes are the folders under which Python packages may be installed.
func prefixes() []string {
	var dirs []string
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if dir := os.Getenv(name); dir != "" {
			dirs = append(dirs, dir)
		}
	}
	if python, err := exec.LookPath("python3"); err == nil {
		dirs = append(dirs, filepath.Dir(filepath.Dir(python)))
		if real, err := filepath.EvalSymlinks(python); err == nil {
			dirs = append(dirs, filepath.Dir(filepath.Dir(real)))
		}
	}
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append(dirs, filepath.Join(home, ".local"))
	}
	return append(dirs, "/usr/local", "/usr")
}
