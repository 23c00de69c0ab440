package card

import (
	"os"
	"path/filepath"
	"strings"
)

// mapped is the file behind a library that was loaded by its name alone: the loader
// has searched for it, and only the process's memory tells where it was found.
func mapped(name string) string {
	stem, _, found := strings.Cut(name, ".so")
	if strings.Contains(name, "/") || !found {
		return name
	}
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return name
	}
	for line := range strings.Lines(string(text)) {
		at := strings.IndexByte(line, '/')
		if at < 0 {
			continue
		}
		if path := strings.TrimSpace(line[at:]); strings.HasPrefix(filepath.Base(path), stem+".so") {
			return path
		}
	}
	return name
}
