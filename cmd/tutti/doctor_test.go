package main

import (
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/internal/doctor"
	"github.com/tutti-go/tutti/internal/standin"
)

// linesOf runs tutti doctor --json and returns its lines by area.
func linesOf(t *testing.T, env []string) (map[string][]doctor.Line, told) {
	t.Helper()
	return readLines(t, tuttiWith(t, env, "doctor", "--json"))
}

func readLines(t *testing.T, got told) (map[string][]doctor.Line, told) {
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

// expect holds that an area has a line of a level with some words.
func expect(t *testing.T, areas map[string][]doctor.Line, area, level, words string) {
	t.Helper()
	for _, l := range areas[area] {
		if l.Level == level && strings.Contains(l.What+" "+l.Do, words) {
			return
		}
	}
	t.Errorf("no line of %s says %s, %q: %+v", area, level, words, areas[area])
}

func TestDoctor(t *testing.T) {
	areas, got := linesOf(t, []string{"TUTTI_KERNEL=generic", "NCCL_P2P_DISABLE=1", "RANK=0", "WORLD_SIZE=3"})
	for _, area := range []string{"build", "cores", "memory", "sharing", "limits", "network", "environment", "engine local", "engine tcp"} {
		if len(areas[area]) == 0 {
			t.Errorf("nothing about %s:\n%s", area, got.out)
		}
	}
	expect(t, areas, "cpu", doctor.Warn, "TUTTI_KERNEL has chosen generic")
	expect(t, areas, "environment", doctor.Warn, "NCCL_P2P_DISABLE=1")
	expect(t, areas, "environment", doctor.OK, "a rank of torchrun")
	for _, name := range []string{"local", "tcp"} {
		expect(t, areas, "engine "+name, doctor.OK, "between 2 ranks is right")
	}
	got = tuttiWith(t, nil, "doctor")
	if !strings.Contains(got.out, " fail\n") || strings.ContainsAny(got.out, "\x1b\r") || got.err != "" {
		t.Errorf("%s%s", got.out, got.err)
	}
	for line := range strings.Lines(got.out) {
		if len(line) > 200 { // one long word may be longer than the width
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	areas, _ = linesOf(t, []string{"WORLD_SIZE=3"})
	expect(t, areas, "environment", doctor.Fail, "RANK is not")
	areas, _ = linesOf(t, []string{"TUTTI_SOCKET_IFNAME=nosuch0"})
	expect(t, areas, "network", doctor.Fail, "TUTTI_SOCKET_IFNAME=nosuch0")
	expect(t, areas, "engine tcp", doctor.OK, "is right") // ranks of one host use the loopback alone
}

// TestDoctorGPU looks at the stand-in, new and old.
func TestDoctorGPU(t *testing.T) {
	areas, _ := linesOf(t, gpuEnv(t))
	expect(t, areas, "cuda", doctor.OK, "device")
	expect(t, areas, "gpu 0", doctor.OK, "capability")
	expect(t, areas, "nccl", doctor.OK, "2.29.7")
	expect(t, areas, "engine nccl", doctor.OK, "is right")
	expect(t, areas, "engine staged", doctor.OK, "is right")
	old, err := standin.Build(21403)
	if err != nil {
		t.Skip(err)
	}
	areas, _ = linesOf(t, append(gpuEnv(t), "TUTTI_NCCL_LIBRARY="+old.NCCL))
	expect(t, areas, "nccl", doctor.Warn, "Split makes new communicators from scratch (needs 2.18)")
	// One that the loader finds by its name is where it was found.
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
	expect(t, areas, "nccl", doctor.Warn, "2.14.3 ("+filepath.Join(dir, "libnccl.so.2")+")")
}

// TestDoctorBrokenLibraries has a libnccl that is none, one without its functions, one
// of another machine, and one that kills whoever loads it.
func TestDoctorBrokenLibraries(t *testing.T) {
	env := gpuEnv(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "libnccl.so.2")
	if err := os.WriteFile(path, []byte("this is no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	areas, _ := linesOf(t, append(env, "TUTTI_NCCL_LIBRARY="+path))
	expect(t, areas, "nccl", doctor.Fail, path)
	if len(areas["nccl"]) != 1 {
		t.Errorf("of one library it says more: %+v", areas["nccl"])
	}
	expect(t, areas, "engine tcp", doctor.OK, "is right")
	areas, _ = linesOf(t, []string{"LD_LIBRARY_PATH=" + dir})
	expect(t, areas, "nccl", doctor.Fail, "cannot be used")
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
	expect(t, areas, "nccl", doctor.Fail, "ncclGetVersion")
	// The same file says of itself that it is for another machine.
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint16(text[18:], uint16(elf.EM_RISCV))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	areas, _ = linesOf(t, append(env, "TUTTI_NCCL_LIBRARY="+path))
	expect(t, areas, "nccl", doctor.Fail, "for another machine")
	expect(t, areas, "engine tcp", doctor.OK, "is right")
	build("#include <stdlib.h>\n__attribute__((constructor)) static void f(void) { abort(); }\n")
	areas, _ = linesOf(t, append(env, "TUTTI_NCCL_LIBRARY="+path))
	expect(t, areas, "cuda", doctor.Fail, "has died")
	expect(t, areas, "engine tcp", doctor.OK, "is right")
}
