package standin

import (
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed csrc
var sources embed.FS

// ErrNoCompiler says that there is no C compiler to build the stand-in with.
var ErrNoCompiler = errors.New("no C compiler (cc or gcc): the stand-in for CUDA and NCCL cannot be built")

// Versions are the versions of NCCL that the stand-in can take the form of, as
// NCCL codes them; each is the first, or the last but one, with something new.
var Versions = []int{21403, 21805, 22203, 22304, 22703, 22803, 22809, 22907}

// Newest is the newest of the Versions.
const Newest = 22907

var (
	cudaParts = []string{"control.c", "context.c", "memory.c", "stream.c"}
	ncclParts = []string{"comm.c", "bootstrap.c", "exchange.c", "reduce.c", "plan.c", "rma.c", "group.c", "calls.c"}
)

// Libraries are the paths of a built stand-in. All NCCL libraries of one folder
// share one CUDA library.
type Libraries struct{ CUDA, NCCL string }

// Build returns a stand-in for that version of NCCL, compiling it if no test of
// this user has done so before.
func Build(version int) (Libraries, error) {
	dir, err := folder()
	if err != nil {
		return Libraries{}, err
	}
	l := Libraries{
		CUDA: filepath.Join(dir, "libcuda-standin.so"),
		NCCL: filepath.Join(dir, fmt.Sprintf("libnccl-standin-%d.so", version)),
	}
	if err := compile(dir, l.CUDA, nil, cudaParts); err != nil {
		return Libraries{}, err
	}
	flags := []string{
		fmt.Sprintf("-DVERSION=%d", version), "-Wl,-rpath,$ORIGIN", "-L" + dir, "-l:" + filepath.Base(l.CUDA), "-lm",
	}
	return l, compile(dir, l.NCCL, flags, ncclParts)
}

// folder holds what was built from these very sources.
func folder() (string, error) {
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
	dir := filepath.Join(base, "tutti-standin", fmt.Sprintf("%x", h.Sum(nil)[:8]))
	return dir, os.MkdirAll(dir, 0o700)
}

// compile makes a library out of sources, under another name first: several
// tests may be doing the same.
func compile(dir, target string, flags, parts []string) error {
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		if cc, err = exec.LookPath("gcc"); err != nil {
			return ErrNoCompiler
		}
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
	if text, err := exec.Command(cc, append(args, flags...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("building the stand-in: %w: %s", err, strings.TrimSpace(string(text)))
	}
	return os.Rename(out, target)
}
