package main

import (
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/internal/doctor"
	"github.com/tutti-go/tutti/internal/fakegpu"
)

// linesOf runs tutti doctor --json and returns its lines by area.
func linesOf(t *testing.T, env []string) (map[string][]doctor.Line, result) {
	t.Helper()
	return readLines(t, tuttiWith(t, env, "doctor", "--json"))
}

// readLines decodes the lines of tutti doctor --json, and checks that each problem has a fix and
// that the exit code fits the levels.
func readLines(t *testing.T, got result) (map[string][]doctor.Line, result) {
	t.Helper()
	areas := map[string][]doctor.Line{}
	failed := false
	for text := range strings.Lines(got.out) {
		var l doctor.Line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%v: %q", err, text)
		}
		if (l.Level == doctor.OK) != (l.Do == "") || l.What == "" {
			t.Errorf("%+v", l)
		}
		failed = failed || l.Level == doctor.Fail
		areas[l.Area] = append(areas[l.Area], l)
	}
	if want := map[bool]int{false: 0, true: 1}[failed]; got.code != want {
		t.Errorf("code %d, not %d: %s%s", got.code, want, got.out, got.err)
	}
	return areas, got
}

// checkLine checks that an area has a line with this level and these words.
func checkLine(t *testing.T, areas map[string][]doctor.Line, area, level, words string) {
	t.Helper()
	for _, l := range areas[area] {
		if l.Level == level && strings.Contains(l.What+" "+l.Do, words) {
			return
		}
	}
	t.Errorf("no line of %s says %s, %q: %+v", area, level, words, areas[area])
}

// TestDoctor checks the areas of the report, and what it says about variables of the environment.
func TestDoctor(t *testing.T) {
	areas, got := linesOf(t, []string{"TUTTI_KERNEL=generic", "NCCL_P2P_DISABLE=1", "RANK=0", "WORLD_SIZE=3"})
	for _, area := range []string{"build", "cores", "memory", "sharing", "limits", "network", "environment", "engine local", "engine tcp"} {
		if len(areas[area]) == 0 {
			t.Errorf("nothing about %s:\n%s", area, got.out)
		}
	}
	checkLine(t, areas, "cpu", doctor.Warn, "TUTTI_KERNEL selects generic")
	checkLine(t, areas, "environment", doctor.Warn, "NCCL_P2P_DISABLE=1")
	checkLine(t, areas, "environment", doctor.OK, "a rank of torchrun")
	for _, name := range []string{"local", "tcp"} {
		checkLine(t, areas, "engine "+name, doctor.OK, "between 2 ranks is right")
	}
	got = tuttiWith(t, nil, "doctor")
	if !strings.Contains(got.out, " fail\n") || strings.ContainsAny(got.out, "\x1b\r") || got.err != "" {
		t.Errorf("%s%s", got.out, got.err)
	}
	for line := range strings.Lines(got.out) {
		if len(line) > 200 { // a single long word may exceed the width
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	areas, _ = linesOf(t, []string{"WORLD_SIZE=3"})
	checkLine(t, areas, "environment", doctor.Fail, "RANK is not")
	areas, _ = linesOf(t, []string{"TUTTI_SOCKET_IFNAME=nosuch0"})
	checkLine(t, areas, "network", doctor.Fail, "TUTTI_SOCKET_IFNAME=nosuch0")
	checkLine(t, areas, "engine tcp", doctor.OK, "is right") // ranks of one host use only the loopback interface
}

// TestDoctorGPU examines the fake GPU libraries, a new and an old version.
func TestDoctorGPU(t *testing.T) {
	areas, _ := linesOf(t, gpuEnv(t))
	checkLine(t, areas, "cuda", doctor.OK, "device")
	checkLine(t, areas, "gpu 0", doctor.OK, "capability")
	checkLine(t, areas, "nccl", doctor.OK, "2.29.7")
	checkLine(t, areas, "engine nccl", doctor.OK, "is right")
	checkLine(t, areas, "engine staged", doctor.OK, "is right")
	old, err := fakegpu.Build(21403)
	if err != nil {
		t.Skip(err)
	}
	areas, _ = linesOf(t, append(gpuEnv(t), "TUTTI_NCCL_LIBRARY="+old.NCCL))
	checkLine(t, areas, "nccl", doctor.Warn, "Split makes new communicators from scratch (needs 2.18)")
	// A library that the loader finds by name is reported with its path.
	dir := t.TempDir()
	for name, from := range map[string]string{"libnccl.so.2": old.NCCL, filepath.Base(old.CUDA): old.CUDA} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	areas, _ = linesOf(t, []string{"LD_LIBRARY_PATH=" + dir})
	checkLine(t, areas, "nccl", doctor.Warn, "2.14.3 ("+filepath.Join(dir, "libnccl.so.2")+")")
}

// TestDoctorBrokenLibraries has a libnccl that is not a library, one without functions,
// one for another machine, and one that kills the process that loads it.
func TestDoctorBrokenLibraries(t *testing.T) {
	env := gpuEnv(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "libnccl.so.2")
	if err := os.WriteFile(path, []byte("this is no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	areas, _ := linesOf(t, append(env, "TUTTI_NCCL_LIBRARY="+path))
	checkLine(t, areas, "nccl", doctor.Fail, path)
	if len(areas["nccl"]) != 1 {
		t.Errorf("of one library it says more: %+v", areas["nccl"])
	}
	checkLine(t, areas, "engine tcp", doctor.OK, "is right")
	areas, _ = linesOf(t, []string{"LD_LIBRARY_PATH=" + dir})
	checkLine(t, areas, "nccl", doctor.Fail, "cannot be used")
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler")
	}
	build := func(source string) {
		t.Helper()
		name := filepath.Join(dir, "source.c")
		if err := os.WriteFile(name, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		if text, err := exec.Command("cc", "-shared", "-fPIC", "-o", path, name).CombinedOutput(); err != nil {
			t.Skipf("%v: %s", err, text)
		}
	}
	build("int nothing_of_nccl;\n")
	areas, _ = linesOf(t, append(env, "TUTTI_NCCL_LIBRARY="+path))
	checkLine(t, areas, "nccl", doctor.Fail, "ncclGetVersion")
	// The same file with another machine type in its ELF header.
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint16(text[18:], uint16(elf.EM_RISCV))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	areas, _ = linesOf(t, append(env, "TUTTI_NCCL_LIBRARY="+path))
	checkLine(t, areas, "nccl", doctor.Fail, "for another machine")
	checkLine(t, areas, "engine tcp", doctor.OK, "is right")
	build("#include <stdlib.h>\n__attribute__((constructor)) static void f(void) { abort(); }\n")
	areas, _ = linesOf(t, append(env, "TUTTI_NCCL_LIBRARY="+path))
	checkLine(t, areas, "cuda", doctor.Fail, "the probe process failed")
	checkLine(t, areas, "engine tcp", doctor.OK, "is right")
}

// TestEnvWithoutJob checks that the variables of every launcher are removed, and no others.
func TestEnvWithoutJob(t *testing.T) {
	rest := []string{"PATH=/bin", "MPI_HOME=/opt/mpi", "TUTTI_SECRET=s"}
	env := append([]string{
		"TUTTI_RANK=1", "LOCAL_RANK=1", "OMPI_COMM_WORLD_RANK=1", "PMI_RANK=1", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2", "SLURM_PROCID=1",
	}, rest...)
	if got := envWithoutJob(env); !slices.Equal(got, rest) {
		t.Errorf("the environment is %q, want %q", got, rest)
	}
}
