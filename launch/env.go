package launch

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// environ returns a rank's environment: the launcher's own, and the variables that
// tutti.Join and PyTorch read. Only the goroutine of attempt.run calls it.
func (h *host) environ(attempt, local int, master string) []string {
	c := h.cfg
	masterHost, masterPort, _ := net.SplitHostPort(master)
	rank, size := strconv.Itoa(h.base+local), strconv.Itoa(h.size)
	agent := "False"
	if h.torchAddr != "" {
		agent = "True"
	}
	vars := []string{
		"TUTTI_RANK=" + rank,
		"TUTTI_SIZE=" + size,
		"TUTTI_LOCAL_RANK=" + strconv.Itoa(local),
		"TUTTI_LOCAL_SIZE=" + strconv.Itoa(c.Ranks),
		"TUTTI_STORE=" + h.storeAddr,
		"TUTTI_ATTEMPT=" + strconv.Itoa(attempt),
		// Ranks of older versions read this name. They must find the other ranks' keys, so that
		// they are refused because of their version.
		"TUTTI_EPOCH=" + strconv.Itoa(attempt),
		"TUTTI_NAME=" + rank,
		"TUTTI_LATE=",
		"TUTTI_SECRET=" + c.Secret,
		"TUTTI_CERT=" + string(h.cert),
		"TUTTI_KEY=" + string(h.key),
		// The launcher's own settings must not reach launchers that ranks may start.
		"TUTTI_NODES=", "TUTTI_NODE=", "TUTTI_ADDR=",

		"RANK=" + rank,
		"WORLD_SIZE=" + size,
		"LOCAL_RANK=" + strconv.Itoa(local),
		"LOCAL_WORLD_SIZE=" + strconv.Itoa(c.Ranks),
		"GROUP_RANK=" + strconv.Itoa(c.Node),
		"GROUP_WORLD_SIZE=" + strconv.Itoa(c.Nodes),
		"ROLE_NAME=default",
		"ROLE_RANK=" + rank,
		"ROLE_WORLD_SIZE=" + size,
		"MASTER_ADDR=" + masterHost,
		"MASTER_PORT=" + masterPort,
		"TORCHELASTIC_RESTART_COUNT=" + strconv.Itoa(attempt),
		"TORCHELASTIC_MAX_RESTARTS=" + strconv.Itoa(c.Restarts),
		"TORCHELASTIC_RUN_ID=tutti",
		"TORCHELASTIC_USE_AGENT_STORE=" + agent,
	}
	if dir := h.flightDir(attempt); dir != "" {
		vars = append(vars, "TUTTI_FLIGHT_DIR="+dir)
	}
	if device := visibleDevice(c.Env, local); c.Visible && device != "" {
		vars = append(vars, "CUDA_VISIBLE_DEVICES="+device)
	}
	return mergeEnv(c.Env, vars)
}

// visibleDevice returns entry local of the list in CUDA_VISIBLE_DEVICES, or local itself if env
// does not have the variable. An empty variable means no devices; the result is then empty.
func visibleDevice(env []string, local int) string {
	value, set := lookupEnv(env, "CUDA_VISIBLE_DEVICES")
	if !set {
		return strconv.Itoa(local)
	}
	list := strings.Split(value, ",")
	return list[local%len(list)]
}

// lookupEnv returns the last value of a variable, which is the value that programs see, and
// whether the variable is set.
func lookupEnv(env []string, name string) (value string, set bool) {
	for _, e := range slices.Backward(env) {
		if k, v, _ := strings.Cut(e, "="); k == name {
			return v, true
		}
	}
	return "", false
}

// mergeEnv replaces variables of env by those in vars, which are NAME=VALUE. An empty
// value removes the variable. The variables by which launchers find each other are
// removed: they belong to this launcher alone.
func mergeEnv(env, vars []string) []string {
	names := make(map[string]bool)
	for _, e := range vars {
		k, _, _ := strings.Cut(e, "=")
		names[k] = true
	}
	var out []string
	for _, e := range env {
		if k, _, _ := strings.Cut(e, "="); !names[k] && k != lifelineName && k != watchdogName {
			out = append(out, e)
		}
	}
	for _, e := range vars {
		if _, value, _ := strings.Cut(e, "="); value != "" {
			out = append(out, e)
		}
	}
	return out
}

// linePrefix returns the text before each line of a rank's output.
func linePrefix(rank, size int, color bool) string {
	text := fmt.Sprintf("[%*d] ", len(strconv.Itoa(size-1)), rank)
	if !color {
		return text
	}
	// These ANSI colours are readable on light and on dark backgrounds.
	colors := []int{36, 33, 32, 35, 34, 31}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", colors[rank%len(colors)], text)
}
