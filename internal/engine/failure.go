package engine

import (
	"encoding/json"
	"errors"
)

// The kinds of failure.
var (
	ErrRankLost     = errors.New("a rank was lost")
	ErrTimeout      = errors.New("timed out")
	ErrMismatch     = errors.New("ranks disagree")
	ErrAborted      = errors.New("aborted")
	ErrClosed       = errors.New("closed")
	ErrInvalid      = errors.New("invalid argument")
	ErrUnsupported  = errors.New("not supported")
	ErrCorrupt      = errors.New("data was damaged")
	ErrExcluded     = errors.New("left behind")
	ErrNoDevicePath = errors.New("no path for device memory")
	ErrRevoked      = errors.New("revoked")
)

// A Failure is the reason why a group has ended. It is created once, on the rank where the failure
// began, and not changed afterwards. It holds facts; Reason and Error put them into words.
type Failure struct {
	Kind  error  // one of the kinds above
	Op    string // the operation in which the failure began; "": none
	Seq   uint64 // the number of that operation; zero: none
	Rank  int    // the rank where the failure began
	Lost  []int  // the ranks that are lost
	Left  bool   // the lost ranks have closed the group, and may still run
	Above []int  // lost ranks of the group that this one was being made of, in that group's numbers
	Told  bool   // the other ranks know of the failure
	Err   error  // the error on Rank itself, e.g. its context's; errors.Is finds it only on that rank

	Facts
}

// Error describes the failure in one sentence.
func (f *Failure) Error() string {
	return Sentence(f.Op, f.Seq, f.Rank, f.Kind.Error()+": "+f.Reason())
}

// Unwrap returns the kind.
func (f *Failure) Unwrap() error { return f.Kind }

// travelKinds are the kinds of failure that end a group, with their names in JSON. An ExitReason
// numbers them from one, in this order.
var travelKinds = [...]struct {
	name string
	kind error
}{
	{"lost", ErrRankLost},
	{"timeout", ErrTimeout},
	{"mismatch", ErrMismatch},
	{"aborted", ErrAborted},
	{"closed", ErrClosed},
	{"unsupported", ErrUnsupported},
	{"corrupt", ErrCorrupt},
	{"device", ErrNoDevicePath},
	{"revoked", ErrRevoked},
}

// KindName returns the name of a kind of failure in JSON; "" if the kind does not end a group.
func KindName(kind error) string {
	if i := kindIndex(kind); i >= 0 {
		return travelKinds[i].name
	}
	return ""
}

// KindNames returns the names of all kinds that end a group.
func KindNames() (names []string) {
	for i := range travelKinds {
		names = append(names, travelKinds[i].name)
	}
	return names
}

// KindNamed returns the kind with that name. For a name that this rank does not know it returns
// ErrAborted.
func KindNamed(name string) error {
	for i := range travelKinds {
		if travelKinds[i].name == name {
			return travelKinds[i].kind
		}
	}
	return ErrAborted
}

func kindIndex(kind error) int {
	for i := range travelKinds {
		if errors.Is(kind, travelKinds[i].kind) {
			return i
		}
	}
	return -1
}

// failureJSON is a Failure as JSON. It omits Told and Err, which are valid on one rank only.
type failureJSON struct {
	Kind  string `json:"kind"`
	Op    string `json:"op,omitempty"`
	Seq   uint64 `json:"seq,omitempty"`
	Rank  int    `json:"rank"`
	Lost  []int  `json:"lost,omitempty"`
	Left  bool   `json:"left,omitempty"`
	Above []int  `json:"above,omitempty"`
	Facts
}

// MarshalJSON encodes the failure for other ranks.
func (f *Failure) MarshalJSON() ([]byte, error) {
	return json.Marshal(&failureJSON{
		Kind: KindName(f.Kind), Op: f.Op, Seq: f.Seq, Rank: f.Rank, Lost: f.Lost, Left: f.Left, Above: f.Above, Facts: f.Facts,
	})
}

// UnmarshalJSON decodes a failure from another rank.
func (f *Failure) UnmarshalJSON(text []byte) error {
	var j failureJSON
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	*f = Failure{
		Kind: KindNamed(j.Kind), Op: j.Op, Seq: j.Seq, Rank: j.Rank, Lost: j.Lost, Left: j.Left, Above: j.Above, Facts: j.Facts,
	}
	return nil
}
