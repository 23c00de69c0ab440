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
)

// A Failure is why a group has ended. It is made once, on the rank where the failure began, and
// not changed afterwards. It holds facts; Reason and Error put them into words.
type Failure struct {
	Kind  error  // one of the kinds above
	Op    string // the operation in which the failure began, "" for none
	Seq   uint64 // the number of that operation; 0 for none
	Rank  int    // the rank where the failure began
	Lost  []int  // the ranks that are lost
	Left  bool   // the lost ranks have closed the group, and may be well
	Above []int  // lost ranks of the group that this one was being made of, in that group's numbers
	Told  bool   // the other ranks know of the failure
	Err   error  // the error that Rank itself saw, e.g. its context's; other ranks do not match it

	Facts
}

// Error describes the failure in one sentence.
func (f *Failure) Error() string {
	return Sentence(f.Op, f.Seq, f.Rank, f.Kind.Error()+": "+f.Reason())
}

// Unwrap returns the kind.
func (f *Failure) Unwrap() error { return f.Kind }

// travelKinds are the kinds of failure that end a group, with the names by which they travel. A
// Farewell numbers them from one, in this order.
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
}

// KindName returns the name by which a kind of failure travels, "" if it does not.
func KindName(kind error) string {
	if i := kindIndex(kind); i >= 0 {
		return travelKinds[i].name
	}
	return ""
}

// KindNames returns the names of all kinds that travel.
func KindNames() (names []string) {
	for i := range travelKinds {
		names = append(names, travelKinds[i].name)
	}
	return names
}

// KindNamed returns the kind with that name. A name that this rank does not know is that of
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

// failureJSON is a Failure as JSON. Told and Err concern one rank only.
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

// MarshalJSON writes what other ranks are told of a failure.
func (f *Failure) MarshalJSON() ([]byte, error) {
	return json.Marshal(&failureJSON{
		Kind: KindName(f.Kind), Op: f.Op, Seq: f.Seq, Rank: f.Rank, Lost: f.Lost, Left: f.Left, Above: f.Above, Facts: f.Facts,
	})
}

// UnmarshalJSON reads a failure of which another rank told.
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
