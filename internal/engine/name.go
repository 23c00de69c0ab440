package engine

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
)

// mostName is the maximum length of a group's name in bytes. Names are part of file
// names, whose length the kernel limits.
const mostName = 128

// roundDigits is the number of digits of the counter in a name that was shortened.
const roundDigits = 8

// methodMark begins the Name of a call that is a part of a method of the user.
const methodMark = "\x01"

// MethodName returns the Name of a call that is a part of a method. Texts show the method's call, such
// as "Grow(2)", in place of the verb and its arguments.
func MethodName(call string) string { return methodMark + call }

// MethodOf returns the method's call in a Name, and whether there is one.
func MethodOf(name string) (call string, ok bool) { return strings.CutPrefix(name, methodMark) }

// GroupName returns the name of a group that operation seq of the group named of has
// made. first is the lowest member of the new group. If the name became longer than
// mostName, a hash replaces all but the first part, with a counter of replacements. A
// name sorts after the names of the groups that the group was made from.
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
