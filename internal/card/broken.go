package card

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

// broken is why a library could not be loaded, and whether one was there. The
// system's own words do not tell: of a file for another machine it says that there is
// no such file.
func broken(err error) (why string, there bool) {
	var none *dl.NotFoundError
	if !errors.As(err, &none) {
		return err.Error(), true
	}
	for _, a := range none.Tried {
		for _, path := range places(a.Path) {
			if why := foreign(path); why != "" {
				return why, true
			}
		}
		there = there || !strings.Contains(a.Reason, "No such file")
	}
	return err.Error(), there
}

// places is where the loader looks first for a name.
func places(name string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	var list []string
	for _, dir := range filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")) {
		list = append(list, filepath.Join(dir, name))
	}
	return list
}

// foreign is why a file that is there cannot be loaded by this program, as far as the
// file itself tells.
func foreign(path string) string {
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
