package tutti_test

import (
	"go/build"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/tutti-go/tutti"

// layers lists the packages from the bottom up. A package may import only what
// stands below it.
var layers = []string{
	"internal/platform",
	"internal/envvar",
	"internal/simrank",
	"clock",
	"internal/freeaddr",
	"internal/proctest",
	"internal/netns",
	"internal/abi",
	"internal/netctx",
	"internal/keepalive",
	"internal/acceptloop",
	"internal/affinity",
	"internal/race",
	"internal/prefetch",
	"internal/fifo",
	"internal/match",
	"internal/kernel",
	"internal/launchenv",
	"internal/jobstore",
	"internal/cliflag",
	"internal/wait",
	"internal/segment",
	"internal/jobtls",
	"internal/crc32c",
	"internal/transport",
	"internal/transport/mem",
	"internal/transport/tcp",
	"internal/transport/shmem",
	"store",
	"internal/claim",
	"internal/agree",
	"internal/engine",
	"internal/flight",
	"internal/flight/inspect",
	"internal/overlay",
	"internal/control",
	"internal/engine/p2p",
	"internal/engine/shm",
	"internal/engine/network",
	"internal/engine/hier",
	"internal/engine/enginetest",
	"internal/sim",
	"internal/dl",
	"internal/fakegpu",
	"internal/cudasys",
	"internal/ncclsys",
	"cuda",
	"nccl",
	"internal/engine/gpu",
	"internal/job",
	"internal/membership",
	"internal/report",
	"",
	"value",
	"tuttitest",
	"gpu",
	"torch",
	"launch",
	"internal/bench",
	"internal/doctor",
	"internal/gpuprobe",
	"cmd/tutti",
	"examples/hello",
	"examples/elastic",
	"examples/regression",
	"examples/weightsync",
	"examples/wordcount",
	"bench/faults",
	"bench/peers",
	"bench/compare",
	"bench/gputest",
}

// outside lists the modules that packages other than tests may import.
var outside = []string{"golang.org/x/sys"}

// loader makes every program that imports it dynamic, even a blank import does.
// Only internal/dl may, and what a CPU-only program uses may not reach that.
const loader = "github.com/ebitengine/purego"

// TestImports checks the imports of every package on three architectures with checkImports: they point down
// only, and keep C and loaders of libraries out of programs that use no GPU.
func TestImports(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || nested(path)) {
			return fs.SkipDir
		}
		for _, arch := range []string{"amd64", "arm64", "riscv64"} {
			ctx := build.Default
			ctx.GOOS, ctx.GOARCH, ctx.CgoEnabled = "linux", arch, true
			pkg, err := ctx.ImportDir(path, 0)
			if err != nil {
				continue // no Go files
			}
			seen++
			checkImports(t, strings.TrimPrefix(filepath.ToSlash(path), "."), pkg)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 3*6 {
		t.Errorf("only %d packages were looked at", seen)
	}
}

// nested reports whether a folder is a module of its own.
func nested(dir string) bool {
	files, _ := filepath.Glob(filepath.Join(dir, "go.mod"))
	return len(files) > 0
}

// TestNoLoaderInCPUPrograms follows the imports of this package, and of the command without GPUs, to their
// end. It fails if they reach the loader of libraries.
func TestNoLoaderInCPUPrograms(t *testing.T) {
	ctx := build.Default
	ctx.GOOS, ctx.GOARCH = "linux", "amd64"
	done := map[string]bool{}
	var follow func(dir string)
	follow = func(dir string) {
		if done[dir] {
			return
		}
		done[dir] = true
		pkg, err := ctx.ImportDir(filepath.FromSlash("./"+dir), 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range pkg.Imports {
			if inner, ours := strings.CutPrefix(imp, module); ours {
				follow(strings.TrimPrefix(inner, "/"))
			}
		}
	}
	follow("")
	ctx.BuildTags = []string{"nogpu"}
	follow("cmd/tutti")
	if done["internal/dl"] {
		t.Error("the root package, or tutti without GPUs, reaches internal/dl: such programs would no longer be static")
	}
	if !done["internal/engine"] {
		t.Error("the imports were not followed")
	}
}

// forTests are the packages that import testing. Other packages do not import them, so that programs do not
// contain package testing and its flags.
var forTests = []string{"internal/proctest", "internal/engine/enginetest", "tuttitest"}

// TestNoTestingInPrograms checks that only packages for tests import testing.
func TestNoTestingInPrograms(t *testing.T) {
	found := 0
	for _, dir := range layers {
		pkg, err := build.ImportDir(filepath.FromSlash("./"+dir), 0)
		if err != nil {
			continue // no Go files for this system
		}
		for _, imp := range pkg.Imports {
			inner := strings.TrimPrefix(imp, module+"/")
			switch {
			case slices.Contains(forTests, dir):
				found++
			case imp == "testing", inner != imp && slices.Contains(forTests, inner):
				t.Errorf("%q imports %q", dir, imp)
			}
		}
	}
	if found == 0 {
		t.Error("the packages for tests were not looked at")
	}
}

// notInRoot are the imports that the root package must not have, with all packages below
// them: the API knows neither connections nor engines, only package membership does.
var notInRoot = []string{
	"net", "crypto", module + "/store", module + "/internal/transport", module + "/internal/job", module + "/internal/control",
	module + "/internal/engine/shm", module + "/internal/engine/network", module + "/internal/engine/hier", module + "/internal/engine/gpu",
	module + "/internal/jobstore", module + "/internal/launchenv",
}

// TestRootImports keeps the root package the API: it imports no network, no cryptography, no
// store, no transport and no engine.
func TestRootImports(t *testing.T) {
	pkg, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, imp := range pkg.Imports {
		for _, no := range notInRoot {
			if imp == no || strings.HasPrefix(imp, no+"/") {
				t.Errorf("the root package imports %q", imp)
			}
		}
	}
	for _, path := range []string{"internal/membership", "internal/report"} {
		pkg, err := build.ImportDir(path, 0)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(pkg.Imports, module) {
			t.Errorf("%q imports the root package", path)
		}
	}
}

// checkImports reports each import of a package that is not in an allowed place: of this module, only
// packages before it in layers; no C; other modules only if outside lists them. The loader is allowed in
// internal/dl alone.
func checkImports(t *testing.T, path string, pkg *build.Package) {
	level := slices.Index(layers, path)
	if level < 0 {
		t.Errorf("%q has no place among the layers of this test", path)
	}
	for _, imp := range pkg.Imports {
		host, _, _ := strings.Cut(imp, "/")
		switch inner, ours := strings.CutPrefix(imp, module); {
		case ours:
			if below := slices.Index(layers, strings.TrimPrefix(inner, "/")); below < 0 || below >= level {
				t.Errorf("%q imports %q, which does not stand below it", path, imp)
			}
		case imp == "C":
			t.Errorf("%q imports C", path)
		case imp == loader && path == "internal/dl":
		case strings.Contains(host, ".") && path != "internal/engine/enginetest":
			if !slices.ContainsFunc(outside, func(m string) bool { return strings.HasPrefix(imp, m+"/") }) {
				t.Errorf("%q imports %q", path, imp)
			}
		}
	}
}
