package tutti_test

import (
	"go/build"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestUnsupportedPlatforms checks that builds for unsupported platforms fail with a
// sentence that says so. Packages that do not compile there import package
// platform, which holds the sentence, so the compiler reports it first.
func TestUnsupportedPlatforms(t *testing.T) {
	const platform = module + "/internal/platform"
	for _, dir := range []string{"internal/engine/shm", "internal/transport/tcp"} {
		p, err := build.ImportDir(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(p.Imports, platform) {
			t.Errorf("%s does not import %s", dir, platform)
		}
	}
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command:", err)
	}
	for _, c := range []struct{ system, arch, want string }{
		{"linux", "386", "tutti needs a 64-bit platform"},
		{"linux", "arm", "tutti needs a 64-bit platform"},
		{"windows", "amd64", "tutti needs Linux or macOS"},
		{"linux", "amd64", ""},
		{"linux", "arm64", ""},
		{"darwin", "arm64", ""},
	} {
		t.Run(c.system+"/"+c.arch, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), tool, "build", platform)
			cmd.Env = append(os.Environ(), "GOOS="+c.system, "GOARCH="+c.arch, "CGO_ENABLED=0")
			out, err := cmd.CombinedOutput()
			if (err != nil) != (c.want != "") || !strings.Contains(string(out), c.want) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
