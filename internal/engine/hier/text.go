package hier

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/tutti-go/tutti/internal/engine"
)

// What the texts of inner engines name: calls, by the labels of which they are
// steps, and lists of ranks as engine.Ranks writes them.
var (
	words = regexp.MustCompile(`[A-Z][A-Za-z]*\([^"()]*name ("(?:[^"\\]|\\.)*")\)` +
		`|\branks? \d+(?:, \d+)*(?: and \d+(?: more)?)?`)
	number = regexp.MustCompile(`\d+`)
)

// reword puts a text of an inner group, whose ranks have other numbers in this
// one, into this group's words. It also returns the ranks that the text names.
func reword(text string, ranks []int) (reworded string, named []int) {
	reworded = words.ReplaceAllStringFunc(text, func(word string) string {
		if !strings.HasPrefix(word, "rank") {
			return rewordCall(word)
		}
		more := ""
		if strings.HasSuffix(word, " more") {
			last := strings.LastIndex(word, " and ")
			word, more = word[:last], word[last:]
		}
		var list []int
		for _, n := range number.FindAllString(word, -1) {
			if r, err := strconv.Atoi(n); err == nil && r < len(ranks) {
				list = append(list, ranks[r])
			}
		}
		named = append(named, list...)
		return engine.Ranks(list) + more
	})
	return reworded, named
}

// rewordCall describes the call that a step belongs to.
func rewordCall(step string) string {
	label, err := strconv.Unquote(words.FindStringSubmatch(step)[1])
	if err != nil {
		return step
	}
	if call, ok := readLabel(label); ok {
		return call
	}
	return step
}
