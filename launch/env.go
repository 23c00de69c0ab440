package launch

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// environ returns a rank's environment: that of the launcher, and the names by
// which tutti.Join and PyTorch find their place.
func (h *host) environ(epoch, local int, master string) []string {
	c := h.cfg
	masterHost, masterPort, _ := net.SplitHostPort(master)
	rank, size := strconv.Itoa(h.base+local), strconv.Itoa(h.size)
	agent := "False"
	if h.torchAddr != "" {
		agent = "True"
	}
	own := []string{
		"TUTTI_RANK=" + rank,
		"TUTTI_SIZE=" + size,
		"TUTTI_LOCAL_RANK=" + strconv.Itoa(local),
		"TUTTI_LOCAL_SIZE=" + strconv.Itoa(c.Ranks),
		"TUTTI_STORE=" + h.storeAddr,
		"TUTTI_EPOCH=" + strconv.Itoa(epoch),
		"TUTTI_NAME=" + rank,
		"TUTTI_LATE=",
		"TUTTI_SECRET=" + c.Secret,
		"TUTTI_CERT=" + string(h.cert),
		"TUTTI_KEY=" + string(h.key),
		// What was said to this launcher is not for those that ranks may start.
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
		"TORCHELASTIC_RESTART_COUNT=" + strconv.Itoa(epoch),
		"TORCHELASTIC_MAX_RESTARTS=" + strconv.Itoa(c.Restarts),
		"TORCHELASTIC_RUN_ID=tutti",
		"TORCHELASTIC_USE_AGENT_STORE=" + agent,
	}
	if dir := h.flightDir(epoch); dir != "" {
		own = append(own, "TUTTI_FLIGHT_DIR="+dir)
	}
	if c.Visible {
		own = append(own, "CUDA_VISIBLE_DEVICES="+device(lookup(c.Env, "CUDA_VISIBLE_DEVICES"), local))
	}
	return merge(c.Env, own)
}

// device returns the local-th of the devices that are visible, or, if nothing
// is said of them, of all.
func device(visible string, local int) string {
	if list := strings.Split(visible, ","); visible != "" {
		return list[local%len(list)]
	}
	return strconv.Itoa(local)
}

// lookup returns the last value of a name, as programs see it.
func lookup(env []string, name string) string {
	for _, e := range slices.Backward(env) {
		if k, v, _ := strings.Cut(e, "="); k == name {
			return v
		}
	}
	return ""
}

// merge puts own in the place of what env says. Empty values take a name away.
func merge(env, own []string) []string {
	names := make(map[string]bool)
	for _, e := range own {
		k, _, _ := strings.Cut(e, "=")
		names[k] = true
	}
	var out []string
	for _, e := range env {
		if k, _, _ := strings.Cut(e, "="); !names[k] && k != lifelineName && k != watchdogName {
			out = append(out, e)
		}
	}
	for _, e := range own {
		if !strings.HasSuffix(e, "=") {
			out = append(out, e)
		}
	}
	return out
}

// prefix is what stands before a rank's lines.
func prefix(rank, size int, color bool) string {
	text := fmt.Sprintf("[%*d] ", len(strconv.Itoa(size-1)), rank)
	if !color {
		return text
	}
	// The colours that can be read on light and dark ground.
	colors := []int{36, 33, 32, 35, 34, 31}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", colors[rank%len(colors)], text)
}
