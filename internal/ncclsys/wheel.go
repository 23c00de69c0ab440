package ncclsys

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Wheel returns the path of the libnccl that PyTorch uses, "" if there is none. It looks in
// the packages of the python3 on PATH, and then of the environment that VIRTUAL_ENV or
// CONDA_PREFIX names. It does not run Python.
func Wheel() string {
	if found := wheels(); len(found) > 0 {
		return found[0]
	}
	return ""
}

// wheels lists the paths of libnccl in Python's packages, in the order of Wheel.
func wheels() []string {
	var found []string
	if python, err := exec.LookPath("python3"); err == nil {
		found = findPython(python).libraries()
	}
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if prefix := os.Getenv(name); prefix != "" {
			found = append(found, (&python{prefixes: []string{prefix}}).libraries()...)
		}
	}
	return found
}

// A python is an installation of Python 3, as its files describe it.
type python struct {
	prefixes []string // sys.prefix, and the prefixes whose packages it also uses, in the order of sys.path
	version  string   // such as "3.12"; "": any
	user     bool     // the packages of the user's site come first
}

// versionPattern matches the version in the name of an executable, such as python3.12, or in
// a line of pyvenv.cfg.
var versionPattern = regexp.MustCompile(`3\.[0-9]+`)

// findPython returns the installation that an executable belongs to: a virtual environment with its prefixes,
// or the prefixes of the path and of the file that it links to. It only looks at files and never starts
// Python.
func findPython(path string) *python {
	path = resolveShim(path)
	prefix := prefixOf(path)
	if cfg := readVenv(filepath.Join(prefix, "pyvenv.cfg")); cfg != nil {
		p := &python{prefixes: []string{prefix}, version: versionPattern.FindString(cfg["version"] + " " + cfg["version_info"])}
		if strings.EqualFold(cfg["include-system-site-packages"], "true") && cfg["home"] != "" {
			p.user, p.prefixes = true, append(p.prefixes, filepath.Dir(cfg["home"]))
		}
		return p
	}
	p := &python{prefixes: []string{prefix}, user: true}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		p.prefixes = append(p.prefixes, prefixOf(real))
		p.version = versionPattern.FindString(filepath.Base(real))
	}
	return p
}

// prefixOf returns the prefix of an executable prefix/bin/python3.
func prefixOf(executable string) string { return filepath.Dir(filepath.Dir(executable)) }

// resolveShim returns the executable that a shim of pyenv starts, or path if it is no shim.
func resolveShim(path string) string {
	root := prefixOf(path)
	if filepath.Base(filepath.Dir(path)) != "shims" {
		return path
	}
	names := os.Getenv("PYENV_VERSION") // one or more versions, separated by colons
	if names == "" {
		text, _ := os.ReadFile(filepath.Join(root, "version"))
		names = strings.Join(strings.Fields(string(text)), ":")
	}
	for name := range strings.SplitSeq(names, ":") {
		inside := filepath.Join(root, "versions", name, "bin", filepath.Base(path))
		if _, err := os.Stat(inside); name != "" && err == nil {
			return inside
		}
	}
	return path
}

// readVenv reads the settings in a virtual environment's pyvenv.cfg; nil if there is no file.
func readVenv(path string) map[string]string {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	settings := make(map[string]string)
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), "="); ok {
			settings[strings.ToLower(strings.TrimSpace(key))] = strings.TrimSpace(value)
		}
	}
	return settings
}

// libraries lists the installation's libnccl files, in the order of sys.path. Missing folders are skipped.
func (p *python) libraries() []string {
	version := p.version
	if version == "" {
		version = "3*"
	}
	dirs := filepath.SplitList(os.Getenv("PYTHONPATH"))
	if p.user && os.Getenv("PYTHONNOUSERSITE") == "" {
		dirs = append(dirs, filepath.Join(userBase(), "lib/python"+version, "site-packages"))
	}
	for _, prefix := range p.prefixes {
		if prefix == "/usr" { // Debian's Python also looks here
			dirs = append(dirs, filepath.Join("/usr/local/lib/python"+version, "dist-packages"))
		}
		for _, packages := range []string{"lib/python" + version + "/site-packages", "lib/python" + version + "/dist-packages", "lib/python3/dist-packages"} {
			dirs = append(dirs, filepath.Join(prefix, packages))
		}
	}
	var found []string
	for _, dir := range dirs {
		if dir != "" {
			files, _ := filepath.Glob(filepath.Join(dir, "nvidia/nccl/lib", soname))
			found = append(found, files...)
		}
	}
	for _, prefix := range p.prefixes { // conda's packages are not wheels
		if _, err := os.Stat(filepath.Join(prefix, "conda-meta")); err == nil {
			files, _ := filepath.Glob(filepath.Join(prefix, "lib", soname))
			found = append(found, files...)
		}
	}
	return found
}

// userBase returns Python's user base directory.
func userBase() string {
	if base := os.Getenv("PYTHONUSERBASE"); base != "" {
		return base
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "/nonexistent"
	}
	return filepath.Join(home, ".local")
}
