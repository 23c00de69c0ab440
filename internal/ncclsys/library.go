package ncclsys

import (
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/internal/dl"
)

// The functions, as indexes of Library.fn.
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

// symbols are the functions' names. since is the code of the version that introduced the
// function; 0 if every version has it.
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

// oldest is the code of the oldest supported version.
const oldest = 21400

// A Library is a loaded libnccl. It may be shared between goroutines.
type Library struct {
	lib     *dl.Library
	fn      [functions]dl.Func // 0: the library does not have the function
	version int                // the version code
	// initConfig is ncclCommInitRankConfig, which takes the id by value.
	initConfig func(comm *Slot, ranks int32, id UniqueID, rank int32, config *Config) int32
}

// Load opens the library at a path, or the first of the candidates if path is "", and looks
// up its functions.
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
		return nil, &dl.MissingError{Library: "NCCL", Symbol: opened.Path(), Need: versionText(oldest), Found: versionText(l.version)}
	}
	if l.fn[fnCommInitRankConfig] == 0 {
		return nil, l.missing(fnCommInitRankConfig)
	}
	dl.Bind(&l.initConfig, l.fn[fnCommInitRankConfig])
	return l, nil
}

// Path returns the library's path, or the name with which the dynamic loader found it.
func (l *Library) Path() string { return l.lib.Path() }

// Version returns the library's version code: 10000*major + 100*minor + patch.
func (l *Library) Version() int { return l.version }

// versionText formats a version code. Codes before 2.9 are 1000*major + 100*minor + patch.
func versionText(code int) string {
	if code < 10000 {
		return fmt.Sprintf("%d.%d.%d", code/1000, code/100%10, code%100)
	}
	if code%100 == 0 {
		return fmt.Sprintf("%d.%d", code/10000, code/100%100)
	}
	return fmt.Sprintf("%d.%d.%d", code/10000, code/100%100, code%100)
}

// VersionText returns the library's version, such as "2.28.9".
func (l *Library) VersionText() string { return versionText(l.version) }

// Needs returns nil if the library's version code is at least code, else an error that says
// that what needs that version.
func (l *Library) Needs(what string, code int) error {
	if l.version >= code {
		return nil
	}
	return &dl.MissingError{Library: "NCCL", Symbol: what, Need: versionText(code), Found: l.VersionText()}
}

// has reports whether the library has function i.
func (l *Library) has(i int) bool { return l.fn[i] != 0 }

// missing returns the error for a function that the library does not have.
func (l *Library) missing(i int) error {
	return &dl.MissingError{
		Library: "NCCL", Symbol: symbols[i].name, Need: versionText(max(symbols[i].since, oldest)), Found: l.VersionText(),
	}
}

// ErrInProgress is ncclInProgress: on a nonblocking communicator, NCCL continues the call
// after returning.
var ErrInProgress = errors.New("NCCL has not finished the call yet")

// An Error is a result of NCCL other than ncclSuccess and ncclInProgress.
type Error struct {
	Func string // NCCL's function
	Code int    // the ncclResult_t
	Text string // the meaning of the code
	Last string // ncclGetLastError: NCCL's last error in this process; may be ""
}

// Error names the function that failed and the result.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s failed: %s (%d)", e.Func, e.Text, e.Code)
	if e.Last != "" {
		s += ": " + e.Last
	}
	return s
}

// result converts a result code of function i to an error.
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

// resultTexts are the meanings of the result codes.
var resultTexts = [...]string{
	"success", "a CUDA call failed", "a system call failed", "internal error", "invalid argument", "invalid usage",
	"a remote process has exited, or the network failed", "in progress", "timeout",
}

// Failure returns the error for a result code of a function, with NCCL's last error text if this version has
// one. The code for a call in progress becomes ErrInProgress.
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

// call calls function i and converts its result to an error.
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

// simple calls function i, none of whose arguments points to Go memory.
func (l *Library) simple(i int, args ...uintptr) error {
	var all dl.Args
	copy(all[:], args)
	return l.enqueue(nil, i, &all)
}

// enqueue is simple inside the bracket of in, or records the call if in holds calls. A nil in
// means no bracket.
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
	return l.callError(before, code, i)
}

// callError converts the results of the bracket's push and of function i to an error.
func (l *Library) callError(before, code uintptr, i int) error {
	switch {
	case int32(before) != 0:
		return &Error{Func: "cuCtxPushCurrent_v2", Code: int(int32(before)), Text: "the device's context cannot be made current"}
	case int32(code) == 0:
		return nil
	}
	return l.result(i, int32(code))
}

// commNumber calls a function that writes a number about a communicator.
func (l *Library) commNumber(i int, comm uintptr) (int, error) {
	fr := dl.NewFrame()
	defer fr.Done()
	err := l.call(fr, i, comm, fr.Out(0))
	return int(int32(fr.Result(0))), err
}
