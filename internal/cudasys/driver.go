package cudasys

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/tutti-go/tutti/internal/dl"
)

// LibraryEnv is the environment variable with the path of the libcuda to load.
const LibraryEnv = "TUTTI_CUDA_LIBRARY"

const hint = "install the NVIDIA driver, or set " + LibraryEnv + " to the path of libcuda.so.1"

// The functions, as indexes of Driver.fn.
const (
	fnInit = iota
	fnDriverGetVersion
	fnGetErrorName
	fnGetErrorString
	fnDeviceGetCount
	fnDeviceGet
	fnDeviceGetName
	fnDeviceGetUuid
	fnDeviceGetPCIBusId
	fnDeviceGetAttribute
	fnDeviceCanAccessPeer
	fnDevicePrimaryCtxRetain
	fnDevicePrimaryCtxRelease
	fnCtxPushCurrent
	fnCtxPopCurrent
	fnCtxGetCurrent
	fnCtxSynchronize
	fnCtxEnablePeerAccess
	fnCtxDisablePeerAccess
	fnMemGetInfo
	fnMemAlloc
	fnMemFree
	fnMemHostAlloc
	fnMemFreeHost
	fnMemHostRegister
	fnMemHostUnregister
	fnMemHostGetDevicePointer
	fnPointerGetAttributes
	fnMemcpyHtoDAsync
	fnMemcpyDtoHAsync
	fnMemcpyDtoDAsync
	fnMemcpyPeerAsync
	fnMemsetD8Async
	fnMemsetD16Async
	fnMemsetD32Async
	fnMemsetD2D32Async
	fnMemPoolCreate
	fnMemPoolDestroy
	fnMemPoolSetAttribute
	fnMemPoolTrimTo
	fnMemAllocAsync
	fnMemAllocFromPoolAsync
	fnMemFreeAsync
	fnStreamCreateWithPriority
	fnStreamDestroy
	fnStreamSynchronize
	fnStreamQuery
	fnStreamWaitEvent
	fnStreamGetCtx
	fnStreamIsCapturing
	fnStreamBeginCapture
	fnStreamEndCapture
	fnGraphDestroy
	fnEventCreate
	fnEventDestroy
	fnEventRecord
	fnEventQuery
	fnEventSynchronize
	fnEventElapsedTime
	fnStreamWaitValue32
	fnStreamWriteValue32
	functions
)

// symbols are the functions' names. since is the CUDA version that introduced the function;
// "" if every supported driver has it.
var symbols = [functions]struct{ name, since string }{
	fnInit:                     {"cuInit", ""},
	fnDriverGetVersion:         {"cuDriverGetVersion", ""},
	fnGetErrorName:             {"cuGetErrorName", ""},
	fnGetErrorString:           {"cuGetErrorString", ""},
	fnDeviceGetCount:           {"cuDeviceGetCount", ""},
	fnDeviceGet:                {"cuDeviceGet", ""},
	fnDeviceGetName:            {"cuDeviceGetName", ""},
	fnDeviceGetUuid:            {"cuDeviceGetUuid", "9.2"},
	fnDeviceGetPCIBusId:        {"cuDeviceGetPCIBusId", ""},
	fnDeviceGetAttribute:       {"cuDeviceGetAttribute", ""},
	fnDeviceCanAccessPeer:      {"cuDeviceCanAccessPeer", ""},
	fnDevicePrimaryCtxRetain:   {"cuDevicePrimaryCtxRetain", ""},
	fnDevicePrimaryCtxRelease:  {"cuDevicePrimaryCtxRelease_v2", "11.0"},
	fnCtxPushCurrent:           {"cuCtxPushCurrent_v2", ""},
	fnCtxPopCurrent:            {"cuCtxPopCurrent_v2", ""},
	fnCtxGetCurrent:            {"cuCtxGetCurrent", ""},
	fnCtxSynchronize:           {"cuCtxSynchronize", ""},
	fnCtxEnablePeerAccess:      {"cuCtxEnablePeerAccess", ""},
	fnCtxDisablePeerAccess:     {"cuCtxDisablePeerAccess", ""},
	fnMemGetInfo:               {"cuMemGetInfo_v2", ""},
	fnMemAlloc:                 {"cuMemAlloc_v2", ""},
	fnMemFree:                  {"cuMemFree_v2", ""},
	fnMemHostAlloc:             {"cuMemHostAlloc", ""},
	fnMemFreeHost:              {"cuMemFreeHost", ""},
	fnMemHostRegister:          {"cuMemHostRegister_v2", ""},
	fnMemHostUnregister:        {"cuMemHostUnregister", ""},
	fnMemHostGetDevicePointer:  {"cuMemHostGetDevicePointer_v2", ""},
	fnPointerGetAttributes:     {"cuPointerGetAttributes", ""},
	fnMemcpyHtoDAsync:          {"cuMemcpyHtoDAsync_v2", ""},
	fnMemcpyDtoHAsync:          {"cuMemcpyDtoHAsync_v2", ""},
	fnMemcpyDtoDAsync:          {"cuMemcpyDtoDAsync_v2", ""},
	fnMemcpyPeerAsync:          {"cuMemcpyPeerAsync", ""},
	fnMemsetD8Async:            {"cuMemsetD8Async", ""},
	fnMemsetD16Async:           {"cuMemsetD16Async", ""},
	fnMemsetD32Async:           {"cuMemsetD32Async", ""},
	fnMemsetD2D32Async:         {"cuMemsetD2D32Async", ""},
	fnMemPoolCreate:            {"cuMemPoolCreate", "11.2"},
	fnMemPoolDestroy:           {"cuMemPoolDestroy", "11.2"},
	fnMemPoolSetAttribute:      {"cuMemPoolSetAttribute", "11.2"},
	fnMemPoolTrimTo:            {"cuMemPoolTrimTo", "11.2"},
	fnMemAllocAsync:            {"cuMemAllocAsync", "11.2"},
	fnMemAllocFromPoolAsync:    {"cuMemAllocFromPoolAsync", "11.2"},
	fnMemFreeAsync:             {"cuMemFreeAsync", "11.2"},
	fnStreamCreateWithPriority: {"cuStreamCreateWithPriority", ""},
	fnStreamDestroy:            {"cuStreamDestroy_v2", ""},
	fnStreamSynchronize:        {"cuStreamSynchronize", ""},
	fnStreamQuery:              {"cuStreamQuery", ""},
	fnStreamWaitEvent:          {"cuStreamWaitEvent", ""},
	fnStreamGetCtx:             {"cuStreamGetCtx", "9.2"},
	fnStreamIsCapturing:        {"cuStreamIsCapturing", "10.0"},
	fnStreamBeginCapture:       {"cuStreamBeginCapture_v2", "10.1"},
	fnStreamEndCapture:         {"cuStreamEndCapture", "10.0"},
	fnGraphDestroy:             {"cuGraphDestroy", "10.0"},
	fnEventCreate:              {"cuEventCreate", ""},
	fnEventDestroy:             {"cuEventDestroy_v2", ""},
	fnEventRecord:              {"cuEventRecord", ""},
	fnEventQuery:               {"cuEventQuery", ""},
	fnEventSynchronize:         {"cuEventSynchronize", ""},
	fnEventElapsedTime:         {"cuEventElapsedTime", ""},
	fnStreamWaitValue32:        {"cuStreamWaitValue32_v2", "11.7"},
	fnStreamWriteValue32:       {"cuStreamWriteValue32_v2", "11.7"},
}

// A Driver is a loaded libcuda. It may be shared between goroutines.
type Driver struct {
	lib *dl.Library
	fn  [functions]dl.Func // 0: the library does not have the function
}

// Load opens libcuda and looks up its functions. It does not initialise CUDA.
func Load() (*Driver, error) {
	lib, err := dl.Open("the CUDA driver (libcuda)", hint, candidates()...)
	if err != nil {
		return nil, err
	}
	d := &Driver{lib: lib}
	for i, s := range symbols {
		d.fn[i] = lib.Func(s.name)
	}
	return d, nil
}

// candidates returns the paths to try: only LibraryEnv if it is set, else the dynamic loader's
// own search and then folders that drivers use without configuring the loader.
func candidates() []string {
	if path := os.Getenv(LibraryEnv); path != "" {
		return []string{path}
	}
	const name = "libcuda.so.1"
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	paths := []string{name}
	for _, dir := range []string{
		"/usr/lib/" + arch + "-linux-gnu", "/usr/lib64", "/usr/lib/wsl/lib",
		"/usr/local/nvidia/lib64", "/usr/local/cuda/compat", "/run/opengl-driver/lib",
	} {
		paths = append(paths, filepath.Join(dir, name))
	}
	return paths
}

// Path returns the library's path, or the name with which the dynamic loader found it.
func (d *Driver) Path() string { return d.lib.Path() }

// An Error is a result of the driver other than CUDA_SUCCESS.
type Error struct {
	Func string // the driver's function
	Code int    // the CUresult
	Name string // such as CUDA_ERROR_OUT_OF_MEMORY; "" if the driver has none
	Text string // the driver's description
}

// Error names the function that failed and the result.
func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("%s failed with the unknown code %d", e.Func, e.Code)
	}
	return fmt.Sprintf("%s failed: %s (%s, %d)", e.Func, e.Text, e.Name, e.Code)
}

// Results that callers handle.
const (
	ErrorInvalidContext       = 201
	ErrorNotReady             = 600
	ErrorPeerAccessEnabled    = 704
	ErrorPeerAccessNotEnabled = 705
)

// raw calls function i and returns its result.
func (d *Driver) raw(fr *dl.Frame, i int, args ...uintptr) (int32, error) {
	if d.fn[i] == 0 {
		return 0, d.missing(i)
	}
	return int32(fr.Call(d.fn[i], args...)), nil
}

// call calls function i and converts its result to an error.
func (d *Driver) call(fr *dl.Frame, i int, args ...uintptr) error {
	code, err := d.raw(fr, i, args...)
	if err == nil && code == 0 {
		return nil
	}
	return d.failure(i, code, err)
}

// simple calls function i, none of whose arguments points to Go memory.
func (d *Driver) simple(i int, args ...uintptr) error {
	var all dl.Args
	copy(all[:], args)
	return d.callIn(nil, i, &all)
}

// callIn is simple inside a bracket, which makes a context current. A nil bracket is none.
func (d *Driver) callIn(in *dl.Bracket, i int, args *dl.Args) error {
	if d.fn[i] == 0 {
		return d.missing(i)
	}
	before, code := dl.CallIn(in, d.fn[i], args)
	switch {
	case int32(before) != 0:
		return d.failure(fnCtxPushCurrent, int32(before), nil)
	case int32(code) != 0:
		return d.failure(i, int32(code), nil)
	}
	return nil
}

// out1 calls a function that writes one number to the address in its first argument. args
// are the other arguments.
func (d *Driver) out1(i int, args ...uintptr) (uintptr, error) {
	fr := dl.NewFrame()
	defer fr.Done()
	var all [8]uintptr
	all[0] = fr.Out(0)
	n := copy(all[1:], args)
	err := d.call(fr, i, all[:n+1]...)
	return uintptr(fr.Result(0)), err
}

// query calls a function whose result is success for true and CUDA_ERROR_NOT_READY for false.
func (d *Driver) query(i int, handle uintptr) (bool, error) {
	fr := dl.NewFrame()
	defer fr.Done()
	code, err := d.raw(fr, i, handle)
	if err == nil && (code == 0 || code == ErrorNotReady) {
		return code == 0, nil
	}
	return false, d.failure(i, code, err)
}

// missing returns the error for a function that the library does not have.
func (d *Driver) missing(i int) error {
	found := "an unknown version"
	if v, err := d.Version(); err == nil {
		found = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	return &dl.MissingError{Library: "CUDA", Symbol: symbols[i].name, Need: symbols[i].since, Found: found}
}

// failure returns err, or else the error for a result of function i.
func (d *Driver) failure(i int, code int32, err error) error {
	if err != nil {
		return err
	}
	return &Error{
		Func: symbols[i].name, Code: int(code),
		Name: d.text(fnGetErrorName, code), Text: d.text(fnGetErrorString, code),
	}
}

// text returns the driver's text for a result; "" if it has none.
func (d *Driver) text(i int, code int32) string {
	fr := dl.NewFrame()
	defer fr.Done()
	if rc, err := d.raw(fr, i, uintptr(code), fr.Out(0)); err != nil || rc != 0 {
		return ""
	}
	return dl.String(uintptr(fr.Result(0)))
}
