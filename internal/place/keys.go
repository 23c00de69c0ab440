package place

import (
	"fmt"
	"strconv"
	"strings"
)

// What ranks and their launcher tell each other in the job's store, beside what
// Join needs to find rank 0. A process is known by the name that its launcher
// gave it, Place.Name.

// Withdrawn is in the place of a newcomer that waits no longer.
const Withdrawn = "gone"

// LateKey is the ticket of a process that wants to be let in: who holds it, or
// Withdrawn. Tickets count from 1, and none is left out.
func LateKey(ticket int64) string { return "late/" + strconv.FormatInt(ticket, 10) }

// Holder is what a process called name puts into LateKey: about says more of it,
// for people, and unique is in no other's.
func Holder(name, about, unique string) string { return fmt.Sprintf("%s\n%s\n%s", name, about, unique) }

// HolderName is the name of a ticket's holder; "" if it has none, or is no more.
func HolderName(holder string) string {
	name, _, _ := strings.Cut(holder, "\n")
	if holder == Withdrawn {
		return ""
	}
	return name
}

// WorldKey is where the ranks of the n-th Comm of all decide on the next.
func WorldKey(n int) string { return fmt.Sprintf("%s/%d", WorldLine, n) }

// WorldLine is the name of the Comms that follow each other from Join's.
const WorldLine = "world"

// LetInKey is there when a newcomer was let in: as which rank of how many.
func LetInKey(name string) string { return "let in/" + name }

// AskKey is there when the launcher wants to know what its processes are doing.
const AskKey = "ask"

// ToldKey is what a process was doing on its communicators: flight.Dumps, as
// JSON, one after another. It tells that when one of them fails, and when it is
// asked.
func ToldKey(name string) string { return "told/" + name }

// AnsweredKey is there when a process has answered, and left its dumps.
func AnsweredKey(name string) string { return "answered/" + name }
