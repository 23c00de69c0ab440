package bench

import (
	"bufio"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/tutti-go/tutti/internal/kernel"
)

// Machine describes rank 0's host in a report.
type Machine struct {
	Host    string   `json:"host"`
	CPU     string   `json:"cpu"`
	Cores   int      `json:"cores"`
	System  string   `json:"system"`
	Kernel  string   `json:"kernel"` // code path of the reductions
	Go      string   `json:"go"`
	Version string   `json:"version"` // of tutti
	Time    string   `json:"time"`
	Env     []string `json:"env"` // relevant variables, without secrets
}

func describeMachine() Machine {
	m := Machine{
		CPU: cpuModel(), Cores: runtime.NumCPU(), System: System(), Kernel: kernel.Path(), Go: runtime.Version(),
		Version: Version(), Time: time.Now().UTC().Format(time.RFC3339), Env: Environment(os.Environ()),
	}
	m.Host, _ = os.Hostname()
	return m
}

// System returns the operating system and its version.
func System() string {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS + "/" + runtime.GOARCH
	}
	return runtime.GOOS + "/" + runtime.GOARCH + " " + strings.TrimSpace(string(text))
}

func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, value, _ := strings.Cut(s.Text(), ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// Version returns the version of this program.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	text := info.Main.Version
	if rev := settings["vcs.revision"]; rev != "" && !strings.Contains(text, rev[:min(12, len(rev))]) {
		text += " " + rev[:min(12, len(rev))]
	}
	if settings["vcs.modified"] == "true" && !strings.Contains(text, "dirty") {
		text += " (changed)"
	}
	return text
}

// rankVars are variables that differ per rank. secretVars are variables that a
// report must not contain.
var (
	rankVars = []string{
		"TUTTI_RANK", "TUTTI_SIZE", "TUTTI_LOCAL_RANK", "TUTTI_LOCAL_SIZE", "TUTTI_STORE", "TUTTI_ATTEMPT", "TUTTI_EPOCH", "TUTTI_LIFELINE",
		"TUTTI_NAME", "TUTTI_LATE",
		PlanEnv,
	}
	secretVars = []string{"TUTTI_SECRET", "TUTTI_KEY", "TUTTI_CERT"}
)

// Environment returns the variables that may change results, sorted, without
// secrets.
func Environment(env []string) (list []string) {
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if slices.Contains(rankVars, name) || slices.Contains(secretVars, name) {
			continue
		}
		for _, prefix := range []string{"TUTTI_", "NCCL_", "CUDA_", "GOMAXPROCS", "GODEBUG", "GOGC", "GOMEMLIMIT"} {
			if strings.HasPrefix(name, prefix) {
				list = append(list, e)
				break
			}
		}
	}
	slices.Sort(list)
	return list
}
