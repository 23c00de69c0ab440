package jobstore

import (
	"fmt"
	"strconv"
	"strings"
)

// World is the lineage of the first Comm that Join returns. The lineage of the nth one is
// World.n. A Comm's lineage is the sequence of the Comms that Shrink and Grow make from it.
const World = "world"

// Ranks returns the prefix of the keys that the ranks of an attempt use. attempt is the
// number that the launcher passes in the environment, "" if it passes none.
func Ranks(attempt string) string { return "tutti/" + attempt }

// Keys of the rendezvous in Join.
const (
	// Size holds the number of ranks of the job, as decimal text. The launcher or the
	// first rank in Join writes it once.
	Size = "size"
	// Refused is a queue of texts, one for each process that was refused. The refused
	// process writes it; the launcher logs it. The launchers' part has the same queue for
	// hosts.
	Refused = "refused"
)

// Rank holds the claim of the process that is a rank, as JSON; see package claim. The
// process writes it when it enters Join. It is empty after a refusal.
func Rank(rank int) string { return rankPrefix + strconv.Itoa(rank) }

// Joined holds the attempt of rank 0 that a rank has joined, as JSON. The rank writes it
// at the end of Join.
func Joined(rank int) string { return joinedPrefix + strconv.Itoa(rank) }

const (
	rankPrefix   = "rank/"
	joinedPrefix = "joined/"
)

// ParseRank returns the rank of a key that Rank has made.
func ParseRank(key string) (rank int, ok bool) { return parse(key, rankPrefix) }

// ParseJoined returns the rank of a key that Joined has made.
func ParseJoined(key string) (rank int, ok bool) { return parse(key, joinedPrefix) }

func parse(key, prefix string) (int, bool) {
	text, ok := strings.CutPrefix(key, prefix)
	n, err := strconv.Atoi(text)
	return n, ok && err == nil
}

// Attempt holds what rank 0 offers in its nth Join, as JSON: the attempt's number,
// lineage, address and token. Rank 0 writes it once. Numbers count from 1 without gaps.
func Attempt(n int64) string { return "attempt/" + strconv.FormatInt(n, 10) }

// Address holds the address, host:port, at which rank 0 listens in its nth attempt. Rank 0
// writes it once, after Attempt. Ranks of protocol 1 know only this key of the rendezvous.
func Address(n int64) string { return "address/" + strconv.FormatInt(n, 10) }

// Lineage holds the number of the attempt that has the nth lineage, as decimal text. The
// first rank that joins in the attempt writes it once.
func Lineage(n int64) string { return "line/" + strconv.FormatInt(n, 10) }

// Generation is the name of generation n of a lineage. It precedes the generation's keys.
func Generation(lineage string, n int) string { return fmt.Sprintf("%s/%d", lineage, n) }

// GenerationAddress holds the address at which rank 0 of a generation listens. That rank
// writes it once, when it forms the generation.
func GenerationAddress(generation string) string { return generation + "/address" }

// Question is the name of the nth question that Agree settles in a generation. The question
// of the generation's successor has the generation's own name.
func Question(generation string, n uint64) string { return fmt.Sprintf("%s/agree/%d", generation, n) }

// Announced holds one line for each rank that takes part in a question: its number and its
// value. The rank appends the line when it enters Shrink or Agree.
func Announced(question string) string { return question + "/here" }

// Decision holds the answer to a question, as JSON; see agree.Decision. The first rank that
// can decide writes it once.
func Decision(question string) string { return question + "/next" }

// Admitted holds the rank and the size, as text for people, of a process that Grow has
// admitted. The process writes it. name is the launcher's name for the process.
func Admitted(name string) string { return "let in/" + name }

// ReportRequest is empty. The launcher writes it when it asks its processes for reports.
const ReportRequest = "ask"

// Report holds a process's activity on its Comms: a sequence of flight.Dumps as JSON. The
// process writes it when an operation fails, and when the launcher asks. name is the
// launcher's name for the process.
func Report(name string) string { return "told/" + name }

// ReportComplete is empty. A process writes it when it has answered ReportRequest and has
// written its flight files.
func ReportComplete(name string) string { return "answered/" + name }
