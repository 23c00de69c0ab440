package launchenv

import (
	"fmt"
	"strconv"
	"strings"
)

// Keys in the job's store for ranks and their launcher, in addition to those of the
// rendezvous. A process is identified by the name that its launcher assigns,
// Place.Name.

// Withdrawn replaces the ticket of a process that no longer waits for admission.
const Withdrawn = "gone"

// LateKey is the ticket of a process that waits for admission. Its value is the holder,
// or Withdrawn. Tickets count from 1 without gaps.
func LateKey(ticket int64) string { return "late/" + strconv.FormatInt(ticket, 10) }

// Holder returns the value of LateKey for a process called name. about describes the
// process for people. unique makes the value unique.
func Holder(name, about, unique string) string { return fmt.Sprintf("%s\n%s\n%s", name, about, unique) }

// HolderName returns the name of a ticket's holder; "" if it has no name or has
// withdrawn.
func HolderName(holder string) string {
	name, _, _ := strings.Cut(holder, "\n")
	if holder == Withdrawn {
		return ""
	}
	return name
}

// WorldKey is the key under which the ranks of generation n of the world decide on the
// next one.
func WorldKey(n int) string { return fmt.Sprintf("%s/%d", WorldLine, n) }

// WorldLine names the sequence of Comms that starts with Join's.
const WorldLine = "world"

// LetInKey is set when a process was admitted. Its value is its rank and the size.
func LetInKey(name string) string { return "let in/" + name }

// AskKey is set when the launcher asks its processes for their activity.
const AskKey = "ask"

// ToldKey holds a process's activity on its communicators: a sequence of flight.Dumps
// as JSON. A process sets it when an operation fails, and when the launcher asks.
func ToldKey(name string) string { return "told/" + name }

// AnsweredKey is set when a process has answered and written its dumps.
func AnsweredKey(name string) string { return "answered/" + name }
