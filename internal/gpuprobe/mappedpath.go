package gpuprobe

import (
	"os"
	"path/filepath"
	"strings"
)

// mappedPath returns the file of a library that was loaded by name, or the name itself if the file
// is not found. Only /proc/self/maps shows which file the loader found.
func mappedPath(name string) string {
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
