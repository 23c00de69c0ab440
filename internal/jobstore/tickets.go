package jobstore

import (
	"fmt"
	"strconv"
	"strings"
)

// Ticket holds the process that waits in Join with Config.Late for admission: the text of
// Holder, or Withdrawn. The process writes it when it enters Join; the process or its
// launcher replaces it when the process stops waiting. Tickets count from 1 without gaps.
func Ticket(n int64) string { return "late/" + strconv.FormatInt(n, 10) }

// Withdrawn is the value of the ticket of a process that no longer waits for admission.
const Withdrawn = "gone"

// Holder returns the value of the ticket of a process called name. about describes the
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
