package torch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/fakegpu"
	"github.com/tutti-go/tutti/internal/proctest"
	"github.com/tutti-go/tutti/torch"
)

// printLibrary is a process that prints which libnccl torch.Join loads.
func printLibrary() error {
	path, version, err := torch.LoadedLibrary()
	if err != nil {
		return err
	}
	fmt.Printf("%s %s\n", version, path)
	return nil
}

// link makes a symbolic link and the folders above it.
func link(t *testing.T, target, path string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Symlink(target, path)); err != nil {
		t.Fatal(err)
	}
}

// program makes an executable file, which is never run.
func program(t *testing.T, path string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("#!/bin/false\n"), 0o700)); err != nil {
		t.Fatal(err)
	}
}

// TestLibrary has NCCL 2.28.3 where the dynamic loader finds it, and 2.28.9 in a wheel of the
// python3 on PATH. Join loads the wheel, unless TUTTI_NCCL_LIBRARY names another library.
func TestLibrary(t *testing.T) {
	fake(t)
	system, err := fakegpu.Build(22803)
	if err != nil {
		t.Fatal(err)
	}
	wheel, err := fakegpu.Build(22809)
	if err != nil {
		t.Fatal(err)
	}
	const packages = "lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2"
	type layout struct {
		python string   // the folder on PATH
		wheel  string   // path of the wheel; "": none
		env    []string // additional variables
		want   string
	}
	for name, make := range map[string]func(root string) layout{
		"installation": func(root string) layout {
			program(t, root+"/bin/python3.12")
			link(t, "python3.12", root+"/bin/python3")
			return layout{python: root + "/bin", wheel: root + "/" + packages, want: "2.28.9"}
		},
		"linked": func(root string) layout {
			program(t, root+"/opt/bin/python3.12")
			link(t, root+"/opt/bin/python3.12", root+"/bin/python3")
			return layout{python: root + "/bin", wheel: root + "/opt/" + packages, want: "2.28.9"}
		},
		"virtual environment": func(root string) layout {
			program(t, root+"/venv/bin/python3")
			settings := "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.12.3\n"
			if err := os.WriteFile(root+"/venv/pyvenv.cfg", []byte(settings), 0o600); err != nil {
				t.Fatal(err)
			}
			return layout{python: root + "/venv/bin", wheel: root + "/venv/" + packages, want: "2.28.9"}
		},
		"virtual environment over another": func(root string) layout {
			program(t, root+"/venv/bin/python3")
			settings := "home = " + root + "/base/bin\ninclude-system-site-packages = true\nversion = 3.12.3\n"
			if err := os.WriteFile(root+"/venv/pyvenv.cfg", []byte(settings), 0o600); err != nil {
				t.Fatal(err)
			}
			return layout{python: root + "/venv/bin", wheel: root + "/base/" + packages, want: "2.28.9"}
		},
		"of the user": func(root string) layout {
			program(t, root+"/bin/python3")
			return layout{python: root + "/bin", wheel: root + "/home/.local/" + packages, env: []string{"HOME=" + root + "/home"}, want: "2.28.9"}
		},
		"pyenv": func(root string) layout {
			program(t, root+"/versions/3.12.1/bin/python3")
			program(t, root+"/shims/python3")
			if err := os.WriteFile(root+"/version", []byte("3.12.1\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			return layout{python: root + "/shims", wheel: root + "/versions/3.12.1/" + packages, want: "2.28.9"}
		},
		"another version of Python": func(root string) layout {
			program(t, root+"/bin/python3.11")
			link(t, "python3.11", root+"/bin/python3")
			return layout{python: root + "/bin", wheel: root + "/" + packages, want: "2.28.3"}
		},
		"no wheel": func(root string) layout {
			program(t, root+"/bin/python3")
			return layout{python: root + "/bin", want: "2.28.3"}
		},
		"no Python": func(root string) layout { return layout{python: root, want: "2.28.3"} },
		"named": func(root string) layout {
			program(t, root+"/bin/python3")
			return layout{python: root + "/bin", wheel: root + "/" + packages, env: []string{"TUTTI_NCCL_LIBRARY=" + system.NCCL}, want: "2.28.3"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			l := make(root)
			if l.wheel != "" {
				link(t, wheel.NCCL, l.wheel)
			}
			link(t, system.NCCL, root+"/system/libnccl.so.2")
			cmd := exec.CommandContext(t.Context(), proctest.Self(t))
			cmd.Env = append([]string{
				"TUTTI_TEST_LIBRARY=1", "PATH=" + l.python, "HOME=" + root + "/nobody",
				"LD_LIBRARY_PATH=" + root + "/system:" + filepath.Dir(system.CUDA),
			}, l.env...)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.HasPrefix(string(out), l.want+" ") {
				t.Errorf("%q, %v; want %s", out, err, l.want)
			}
		})
	}
}

// TestOtherVersion has a Python rank with another NCCL version. The Go rank's error names both
// versions, the file that was loaded, and the variable to set.
func TestOtherVersion(t *testing.T) {
	fake(t)
	other, err := fakegpu.Build(22809)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	addr := proctest.FreeAddr(t)
	second := make(chan error, 1)
	go func() {
		p := &python{rank: 1, size: 2, library: other.NCCL}
		defer p.close()
		second <- p.start(ctx, addr, false)
	}()
	g, err := torch.Join(ctx, torch.Config{Rank: 0, Size: 2, Addr: addr, Library: os.Getenv("TUTTI_NCCL_LIBRARY")})
	if err != nil {
		t.Fatal(err)
	}
	err = g.Connect(ctx)
	if err == nil {
		t.Fatal("the communicator was made")
	}
	for _, part := range []string{"22809", "22907", "NCCL 2.29.7 from " + os.Getenv("TUTTI_NCCL_LIBRARY"), "set TUTTI_NCCL_LIBRARY"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
	if e := (*tutti.Error)(nil); !errors.As(err, &e) {
		t.Errorf("%T", err)
	}
	if err := <-second; err == nil || !strings.Contains(err.Error(), "Mismatched NCCL version") {
		t.Errorf("the other rank: %v", err)
	}
	_ = g.Close()
}
