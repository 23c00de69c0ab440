package nccl

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/ncclsys"
)

// A Library is a loaded libnccl. It may be shared between goroutines.
type Library struct {
	sys *ncclsys.Library

	open   atomic.Int32 // the number of groups; zero keeps calls on the fast path
	mu     sync.Mutex
	groups map[int]*group // by thread id; guarded by mu
}

// loaded holds the process's Libraries, one for each file. Groups belong to a library and
// a thread, so there must not be two Libraries of one file.
var loaded struct {
	mu     sync.Mutex
	byPath map[string]*Library // also by the argument of Load; guarded by mu
}

// Load loads the NCCL library at a path. With "" it loads the library that TUTTI_NCCL_LIBRARY names, or the
// first one of those that the dynamic loader finds, PyTorch's wheel and the usual folders. If none can be
// loaded, the error is a *cuda.LibraryError that lists them. Libraries are never unloaded, and a second Load
// of a file returns the same Library. Load may be called concurrently.
func Load(path string) (*Library, error) {
	loaded.mu.Lock()
	defer loaded.mu.Unlock()
	if l := loaded.byPath[path]; l != nil {
		return l, nil
	}
	sys, err := ncclsys.Load(path)
	if err != nil {
		return nil, public(err)
	}
	if loaded.byPath == nil {
		loaded.byPath = map[string]*Library{}
	}
	l := loaded.byPath[sys.Path()]
	if l == nil {
		l = &Library{sys: sys, groups: map[int]*group{}}
		loaded.byPath[sys.Path()] = l
	}
	loaded.byPath[path] = l
	return l, nil
}

// Available returns nil if NCCL and the CUDA driver can be loaded and a device file
// exists. It initialises neither.
func Available() error {
	if err := cuda.Available(); err != nil {
		return err
	}
	_, err := Load("")
	return err
}

// A Version is a version of NCCL.
type Version struct{ Major, Minor, Patch int }

// String returns the version as "2.28.9".
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// Code returns NCCL_VERSION_CODE: 10000*Major + 100*Minor + Patch.
func (v Version) Code() int { return 10000*v.Major + 100*v.Minor + v.Patch }

// Version returns the library's version.
func (l *Library) Version() Version {
	c := l.sys.Version()
	return Version{c / 10000, c / 100 % 100, c % 100}
}

// Needs returns nil if the library's version is v or newer, else a *cuda.VersionError that
// says that what needs it.
func (l *Library) Needs(what string, v Version) error { return public(l.sys.Needs(what, v.Code())) }

// Path returns the library's path, or the name with which the dynamic loader found it.
func (l *Library) Path() string { return l.sys.Path() }

// Param returns the value of one of NCCL's parameters. It needs NCCL 2.30.
func (l *Library) Param(key string) (string, error) {
	v, err := l.sys.Param(key)
	return v, public(err)
}

// A UniqueID identifies a communicator to the ranks that make it, as ncclUniqueId.
type UniqueID [128]byte

// NewID makes an id for one communicator. The process that made it must live until Init
// has returned on all ranks.
func (l *Library) NewID() (UniqueID, error) {
	id, err := l.sys.GetUniqueID()
	return id.Bytes, public(err)
}

// Alloc allocates device memory with ncclMemAlloc, which suits registration and windows.
// The caller frees it. It needs NCCL 2.19.
func Alloc[T cuda.Elem](l *Library, d *cuda.Device, n int) (*cuda.Slice[T], error) {
	s, err := cuda.Adopt[T](d, n, l.sys.MemAlloc, func(ptr uintptr) error { return public(l.sys.MemFree(ptr)) })
	return s, public(err)
}
