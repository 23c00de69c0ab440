package fakegpu

import (
	"crypto/sha256"
	"debug/elf"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

//go:embed csrc
var sources embed.FS

// ErrNoCompiler reports that there is no C compiler to build the fake libraries with.
var ErrNoCompiler = errors.New("no C compiler for this machine: the fake libcuda and libnccl cannot be built")

// machines are the architectures on which libraries can be loaded, with the names of cross
// compilers: the tests may run in an emulator.
var machines = map[string]struct {
	elf      elf.Machine
	compiler string
}{
	"amd64": {elf.EM_X86_64, "x86_64-linux-gnu-gcc"},
	"arm64": {elf.EM_AARCH64, "aarch64-linux-gnu-gcc"},
}

// Versions are the NCCL versions that the fake libnccl can have, as version codes. Each is the
// first version, or close to it, with something new.
var Versions = []int{21403, 21805, 22203, 22304, 22703, 22803, 22809, 22907}

// Newest is the newest of the Versions.
const Newest = 22907

var (
	cudaParts = []string{"control.c", "context.c", "memory.c", "stream.c"}
	ncclParts = []string{"comm.c", "bootstrap.c", "exchange.c", "reduce.c", "plan.c", "rma.c", "group.c", "calls.c"}
)

// Libraries are the paths of the fake libraries. The fake libnccl of every version uses the
// same fake libcuda.
type Libraries struct{ CUDA, NCCL string }

// Build returns the fake libraries for an NCCL version. It compiles them unless a test of this
// user has done so before.
func Build(version int) (Libraries, error) {
	dir, err := cacheDir()
	if err != nil {
		return Libraries{}, err
	}
	l := Libraries{
		CUDA: filepath.Join(dir, "libcuda-fake.so"),
		NCCL: filepath.Join(dir, fmt.Sprintf("libnccl-fake-%d.so", version)),
	}
	if err := compile(dir, l.CUDA, nil, cudaParts); err != nil {
		return Libraries{}, err
	}
	flags := []string{
		fmt.Sprintf("-DVERSION=%d", version), "-Wl,-rpath,$ORIGIN", "-L" + dir, "-l:" + filepath.Base(l.CUDA), "-lm",
	}
	return l, compile(dir, l.NCCL, flags, ncclParts)
}

// cacheDir makes and returns the folder for libraries built from exactly these sources. Its name holds a hash
// of the sources, so tests of several versions can share the user's cache.
func cacheDir() (string, error) {
	h := sha256.New()
	err := fs.WalkDir(sources, "csrc", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := sources.ReadFile(path)
		fmt.Fprintf(h, "%s %d\n%s", path, len(text), text)
		return err
	})
	if err != nil {
		return "", err
	}
	base, err := os.UserCacheDir()
	if err != nil {
		base = filepath.Join(os.TempDir(), fmt.Sprintf("tutti-%d", os.Getuid()))
	}
	dir := filepath.Join(base, "tutti-fakegpu", fmt.Sprintf("%s-%x", runtime.GOARCH, h.Sum(nil)[:8]))
	return dir, os.MkdirAll(dir, 0o700)
}

// compile builds a library unless target exists. It builds under a temporary name and renames the result,
// because tests of other processes may compile the same library at the same time. Without a C compiler for
// this architecture it returns ErrNoCompiler.
func compile(dir, target string, flags, parts []string) error {
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	work, err := os.MkdirTemp(dir, "build")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := os.CopyFS(work, sources); err != nil {
		return err
	}
	out := filepath.Join(work, "out.so")
	args := []string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-o", out}
	for _, p := range parts {
		args = append(args, filepath.Join(work, "csrc", p))
	}
	args = append(args, "-Wl,-soname,"+filepath.Base(target))
	args = append(args, flags...)
	for _, cc := range []string{machines[runtime.GOARCH].compiler, "cc", "gcc"} {
		if _, err := exec.LookPath(cc); err != nil {
			continue
		}
		if text, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
			if cc == "cc" || cc == "gcc" {
				return fmt.Errorf("building the fake GPU: %w: %s", err, strings.TrimSpace(string(text)))
			}
			continue // a cross compiler may lack a C library
		}
		if file, err := elf.Open(out); err == nil {
			fits := file.Machine == machines[runtime.GOARCH].elf
			_ = file.Close()
			if fits {
				return os.Rename(out, target)
			}
		}
	}
	return ErrNoCompiler
}
