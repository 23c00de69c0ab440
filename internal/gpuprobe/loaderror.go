package gpuprobe

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/tutti-go/tutti/internal/dl"
)

// loadError explains why a library could not be loaded, and whether a file was there.
// dlopen's message does not tell: for a file of another architecture it reports that
// there is no such file.
func loadError(err error) (why string, there bool) {
	var none *dl.NotFoundError
	if !errors.As(err, &none) {
		return err.Error(), true
	}
	for _, a := range none.Tried {
		for _, path := range searchPaths(a.Path) {
			if why := fileProblem(path); why != "" {
				return why, true
			}
		}
		there = there || !strings.Contains(a.Reason, "No such file")
	}
	return err.Error(), there
}

// searchPaths returns the paths that the loader tries first for a name.
func searchPaths(name string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	var list []string
	for _, dir := range filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")) {
		list = append(list, filepath.Join(dir, name))
	}
	return list
}

// fileProblem explains why an existing file cannot be loaded, as far as its ELF header
// shows; "" if it shows no problem or there is no file.
func fileProblem(path string) string {
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Sprintf("%s is no library: %v", path, err)
	}
	defer f.Close()
	here := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	if f.Machine != here {
		return fmt.Sprintf("%s is for another machine: %v, this program is for %v", path, f.Machine, here)
	}
	return ""
}
