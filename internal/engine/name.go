package engine

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
)

// mostName is how long a group's name may be. The system takes no longer ones for
// memory and files.
const mostName = 128

// roundDigits is how many digits say how often a name was made shorter.
const roundDigits = 8

// GroupName names a group that an operation makes of the group of that name, by the
// operation's number and the new group's first member. A group made of a group made
// of a group, and so on, has no longer name than others: what came before is a hash
// then. Names sort behind those of the groups they are made of.
func GroupName(of string, seq uint64, first int) string {
	name := fmt.Sprintf("%s/%d.%d", of, seq, first)
	if len(name) <= mostName {
		return name
	}
	round := 0
	if _, rest, short := strings.Cut(of, "/~"); short {
		round, _ = strconv.Atoi(rest[:min(roundDigits, len(rest))])
	}
	world, _, _ := strings.Cut(of, "/")
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%s/~%0*d.%x", world, roundDigits, round+1, sum[:16])
}
