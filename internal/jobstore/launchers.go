package jobstore

import (
	"fmt"
	"strconv"
)

// Launchers is the prefix of the keys that the launchers of all hosts use.
const Launchers = "launch"

// Keys of the launchers that exist once for the job. Node 0 is the host that has the store.
const (
	// Elastic holds the bounds of the number of ranks, as text. Node 0 writes it when it
	// opens the store.
	Elastic = "elastic"
	// Nodes holds the number of hosts, as decimal text. The first launcher writes it once.
	Nodes = "nodes"
	// Torch holds the address of the plain store for PyTorch, host:port. Node 0 writes it
	// when it has connected to the job.
	Torch = "torch"
	// Left is a barrier of all launchers at the end of the job.
	Left = "left"
)

// Launcher holds the claim of the launcher that is a node; see package claim. The launcher
// writes it when it connects.
func Launcher(node int) string { return "here/" + strconv.Itoa(node) }

// NodeRanks holds the number of ranks of a node, as decimal text. The node's launcher
// writes it when it connects, and deletes it if it gives up.
func NodeRanks(node int) string { return "ranks/" + strconv.Itoa(node) }

// Heartbeat holds a number, as decimal text. The launcher of the node adds 1 to it once per
// heartbeat interval.
func Heartbeat(node int) string { return "beat/" + strconv.Itoa(node) }

// Master holds PyTorch's MASTER_ADDR and MASTER_PORT of an attempt, host:port. Node 0
// writes it at the start of the attempt.
func Master(attempt int) string { return fmt.Sprintf("%d/master", attempt) }

// Failed holds the first failure of an attempt, as JSON. The launcher that sees a failure
// first writes it once.
func Failed(attempt int) string { return fmt.Sprintf("%d/failed", attempt) }

// Ended is a barrier of all launchers at the end of an attempt.
func Ended(attempt int) string { return fmt.Sprintf("%d/ended", attempt) }

// Coordination is a queue of the applications and heartbeats of an elastic job's launchers,
// as JSON. All launchers write it; node 0 reads it.
const Coordination = "desk"

// Reply holds node 0's answer to the application with a token, as JSON. Node 0 writes it
// once.
func Reply(token string) string { return "reply/" + token }

// DeclaredLost holds the reason why node 0 declares a launcher lost, as JSON. Node 0 writes
// it once.
func DeclaredLost(registration int64) string { return fmt.Sprintf("gone/%d", registration) }

// Start holds the nth start message to a launcher, as JSON. Node 0 writes it once. Numbers
// count from 0.
func Start(registration int64, n int) string { return fmt.Sprintf("begin/%d/%d", registration, n) }

// Event holds the nth event of an attempt, as JSON. Node 0 writes it once. Numbers count
// from 1.
func Event(attempt, n int) string { return fmt.Sprintf("event/%d/%d", attempt, n) }
