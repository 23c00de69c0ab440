package tutti_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// goSample matches a Go sample of a page.
var goSample = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// TestSamples compiles the Go samples of every page, each as a program of its own. An overlay makes them
// packages of this module, in folders that do not exist on disk; go list -export compiles and does not link.
func TestSamples(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replace := make(map[string]string)
	command := []string{"list", "-export", "-f=", "-overlay", filepath.Join(dir, "overlay.json")}
	for _, page := range docFiles(t, func(path string) bool { return strings.HasSuffix(path, ".md") }) {
		text := readText(t, page)
		for _, at := range goSample.FindAllStringSubmatchIndex(text, -1) {
			// The directive makes errors name the line of the page.
			line := 1 + strings.Count(text[:at[2]], "\n")
			program := fmt.Sprintf("//line %s:%d\n%s", filepath.Join(root, page), line, text[at[2]:at[3]])
			name := fmt.Sprint("sample", len(replace))
			file := filepath.Join(dir, name+".go")
			if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
				t.Fatal(err)
			}
			replace[filepath.Join(root, "docs", name, "main.go")] = file
			command = append(command, "./docs/"+name)
		}
	}
	if len(replace) == 0 {
		t.Fatal("no page has a sample")
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", command...)
	var errs strings.Builder
	build.Stderr = &errs
	if err := build.Run(); err != nil {
		t.Errorf("%v\n%s", err, errs.String())
	}
}
