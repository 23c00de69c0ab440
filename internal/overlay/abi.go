package overlay

import (
	"github.com/tutti-go/tutti/internal/abi"
	"github.com/tutti-go/tutti/internal/engine"
)

// ABI describes what ranks must have in common: the messages, the causes, and the times after which
// a rank acts in place of another rank.
func ABI() string {
	return abi.Text("overlay",
		"kinds", []Kind{Lost, Left, Failed, State, Report, Position, Ask, Here, Bye, Noted, Drop},
		"causes", engine.KindNames(), "message", abi.Struct[Message](), "cause", abi.Struct[Cause](),
		"SuspectAfter", SuspectAfter, "decideAfter", decideAfter, "decidePerRank", decidePerRank, "confirmAfter", confirmAfter, "missingFor", missingFor,
	)
}
