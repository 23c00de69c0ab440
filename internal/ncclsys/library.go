package ncclsys

import (
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/internal/dl"
)

// The functions, by their place in a Library's table.
const (
	fnGetVersion = iota
	fnGetUniqueId
	fnCommInitRankConfig
	fnCommInitRankScalable
	fnCommFinalize
	fnCommDestroy
	fnCommAbort
	fnCommRevoke
	fnCommSplit
	fnCommShrink
	fnCommGetUniqueId
	fnCommGrow
	fnGetLastError
	fnCommGetAsyncError
	fnCommCount
	fnCommUserRank
	fnMemAlloc
	fnMemFree
	fnCommRegister
	fnCommDeregister
	fnCommWindowRegister
	fnCommWindowDeregister
	fnWinGetUserPtr
	fnCommSuspend
	fnCommResume
	fnCommMemStats
	fnRedOpCreatePreMulSum
	fnRedOpDestroy
	fnAllReduce
	fnReduce
	fnBroadcast
	fnAllGather
	fnReduceScatter
	fnAlltoAll
	fnGather
	fnScatter
	fnSend
	fnRecv
	fnPutSignal
	fnSignal
	fnWaitSignal
	fnGroupStart
	fnGroupEnd
	fnGroupSimulateEnd
	fnParamGetParameter
	functions
)

// symbols are the functions' names and the versions that brought them, as codes.
var symbols = [functions]struct {
	name  string
	since int
}{
	fnGetVersion:           {"ncclGetVersion", 0},
	fnGetUniqueId:          {"ncclGetUniqueId", 0},
	fnCommInitRankConfig:   {"ncclCommInitRankConfig", 21400},
	fnCommInitRankScalable: {"ncclCommInitRankScalable", 22300},
	fnCommFinalize:         {"ncclCommFinalize", 21400},
	fnCommDestroy:          {"ncclCommDestroy", 0},
	fnCommAbort:            {"ncclCommAbort", 0},
	fnCommRevoke:           {"ncclCommRevoke", 22807},
	fnCommSplit:            {"ncclCommSplit", 21800},
	fnCommShrink:           {"ncclCommShrink", 22700},
	fnCommGetUniqueId:      {"ncclCommGetUniqueId", 22900},
	fnCommGrow:             {"ncclCommGrow", 22900},
	fnGetLastError:         {"ncclGetLastError", 21300},
	fnCommGetAsyncError:    {"ncclCommGetAsyncError", 0},
	fnCommCount:            {"ncclCommCount", 0},
	fnCommUserRank:         {"ncclCommUserRank", 0},
	fnMemAlloc:             {"ncclMemAlloc", 21900},
	fnMemFree:              {"ncclMemFree", 21900},
	fnCommRegister:         {"ncclCommRegister", 21900},
	fnCommDeregister:       {"ncclCommDeregister", 21900},
	fnCommWindowRegister:   {"ncclCommWindowRegister", 22700},
	fnCommWindowDeregister: {"ncclCommWindowDeregister", 22700},
	fnWinGetUserPtr:        {"ncclWinGetUserPtr", 22900},
	fnCommSuspend:          {"ncclCommSuspend", 22907},
	fnCommResume:           {"ncclCommResume", 22907},
	fnCommMemStats:         {"ncclCommMemStats", 22907},
	fnRedOpCreatePreMulSum: {"ncclRedOpCreatePreMulSum", 21100},
	fnRedOpDestroy:         {"ncclRedOpDestroy", 21100},
	fnAllReduce:            {"ncclAllReduce", 0},
	fnReduce:               {"ncclReduce", 0},
	fnBroadcast:            {"ncclBroadcast", 0},
	fnAllGather:            {"ncclAllGather", 0},
	fnReduceScatter:        {"ncclReduceScatter", 0},
	fnAlltoAll:             {"ncclAlltoAll", 22800},
	fnGather:               {"ncclGather", 22800},
	fnScatter:              {"ncclScatter", 22800},
	fnSend:                 {"ncclSend", 0},
	fnRecv:                 {"ncclRecv", 0},
	fnPutSignal:            {"ncclPutSignal", 22900},
	fnSignal:               {"ncclSignal", 22900},
	fnWaitSignal:           {"ncclWaitSignal", 22900},
	fnGroupStart:           {"ncclGroupStart", 0},
	fnGroupEnd:             {"ncclGroupEnd", 0},
	fnGroupSimulateEnd:     {"ncclGroupSimulateEnd", 22200},
	fnParamGetParameter:    {"ncclParamGetParameter", 23000},
}

// oldest is the first version that everything without a version of its own is
// there for.
const oldest = 21400

// A Library is a loaded libnccl. It may be shared between goroutines.
type Library struct {
	lib        *dl.Library
	fn         [functions]dl.Func
	version    int
	initConfig func(comm *Slot, ranks int32, id UniqueID, rank int32, config *Config) int32
}

// Load opens the library at a path or, if that is "", the one that is found,
// and looks its functions up.
func Load(path string) (*Library, error) {
	paths := []string{path}
	if path == "" {
		paths = candidates()
	}
	opened, err := dl.Open("NCCL (libnccl)", hint, paths...)
	if err != nil {
		return nil, err
	}
	l := &Library{lib: opened}
	for i, s := range symbols {
		l.fn[i] = opened.Func(s.name)
	}
	fr := dl.NewFrame()
	defer fr.Done()
	if err := l.call(fr, fnGetVersion, fr.Out(0)); err != nil {
		return nil, fmt.Errorf("%s: %w", opened.Path(), err)
	}
	l.version = int(int32(fr.Result(0)))
	if l.version < oldest {
		return nil, &dl.MissingError{Library: "NCCL", Symbol: opened.Path(), Need: text(oldest), Found: text(l.version)}
	}
	if l.fn[fnCommInitRankConfig] == 0 {
		return nil, l.missing(fnCommInitRankConfig)
	}
	dl.Bind(&l.initConfig, l.fn[fnCommInitRankConfig])
	return l, nil
}

// Path is the library's path, or the name by which the loader found it.
func (l *Library) Path() string { return l.lib.Path() }

// Version is the library's version code: 10000*major + 100*minor + patch.
func (l *Library) Version() int { return l.version }

// text writes a version code as people do; codes were denser before 2.9.
func text(code int) string {
	if code < 10000 {
		return fmt.Sprintf("%d.%d.%d", code/1000, code/100%10, code%100)
	}
	if code%100 == 0 {
		return fmt.Sprintf("%d.%d", code/10000, code/100%100)
	}
	return fmt.Sprintf("%d.%d.%d", code/10000, code/100%100, code%100)
}

// VersionText is the library's version as people write it.
func (l *Library) VersionText() string { return text(l.version) }

// Needs returns the error of a call or a setting that needs a newer version; nil
// if this one will do.
func (l *Library) Needs(what string, code int) error {
	if l.version >= code {
		return nil
	}
	return &dl.MissingError{Library: "NCCL", Symbol: what, Need: text(code), Found: l.VersionText()}
}

// Has reports whether a function is there.
func (l *Library) has(i int) bool { return l.fn[i] != 0 }

func (l *Library) missing(i int) error {
	return &dl.MissingError{
		Library: "NCCL", Symbol: symbols[i].name, Need: text(max(symbols[i].since, oldest)), Found: l.VersionText(),
	}
}

// ErrInProgress is the result of a call that goes on after it has returned, on a
// communicator that does not block.
var ErrInProgress = errors.New("NCCL has not finished the call yet")

// An Error is a result other than success and in progress.
type Error struct {
	Func string
	Code int
	Text string // what the code means
	Last string // NCCL's words about the last error in this process, if any
}

// Error says which call failed, and how.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s failed: %s (%d)", e.Func, e.Text, e.Code)
	if e.Last != "" {
		s += ": " + e.Last
	}
	return s
}

// result turns a result code into an error.
func (l *Library) result(i int, code int32) error {
	switch code {
	case 0:
		return nil
	case codeInProgress:
		return ErrInProgress
	}
	return l.Failure(symbols[i].name, int(code))
}

const codeInProgress = 7

// resultTexts are the codes' meanings.
var resultTexts = [...]string{
	"success", "a CUDA call failed", "a system call failed", "internal error", "invalid argument", "invalid usage",
	"a remote process is gone, or the network failed", "in progress", "timeout",
}

// Failure is the error for a result code of a function.
func (l *Library) Failure(function string, code int) error {
	if code == codeInProgress {
		return ErrInProgress
	}
	e := &Error{Func: function, Code: code, Text: "an unknown result"}
	if code >= 0 && code < len(resultTexts) {
		e.Text = resultTexts[code]
	}
	if l.has(fnGetLastError) {
		fr := dl.NewFrame()
		defer fr.Done()
		e.Last = dl.String(fr.Call(l.fn[fnGetLastError], 0))
	}
	return e
}

func (l *Library) call(fr *dl.Frame, i int, args ...uintptr) error {
	if l.fn[i] == 0 {
		return l.missing(i)
	}
	code := int32(fr.Call(l.fn[i], args...))
	if code == 0 {
		return nil
	}
	return l.result(i, code)
}

// simple is a call without results.
func (l *Library) simple(i int, args ...uintptr) error {
	var all dl.Args
	copy(all[:], args)
	return l.enqueue(nil, i, &all)
}

// enqueue is a call without results, in a bracket that makes a context current, or
// in none; or it is held.
func (l *Library) enqueue(in *Around, i int, args *dl.Args) error {
	if l.fn[i] == 0 {
		return l.missing(i)
	}
	var bracket *dl.Bracket
	if in != nil {
		if h := in.Held; h != nil {
			h.calls = append(h.calls, dl.Call{Fn: l.fn[i], Args: *args})
			return nil
		}
		bracket = &in.Bracket
	}
	before, code := dl.CallIn(bracket, l.fn[i], args)
	return l.enqueued(before, code, i)
}

func (l *Library) enqueued(before, code uintptr, i int) error {
	switch {
	case int32(before) != 0:
		return &Error{Func: "cuCtxPushCurrent_v2", Code: int(int32(before)), Text: "the device's context cannot be made current"}
	case int32(code) == 0:
		return nil
	}
	return l.result(i, int32(code))
}

// asked is a call about a communicator that returns a number.
func (l *Library) asked(i int, comm uintptr) (int, error) {
	fr := dl.NewFrame()
	defer fr.Done()
	err := l.call(fr, i, comm, fr.Out(0))
	return int(int32(fr.Result(0))), err
}
