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

	open   atomic.Int32 // groups, so that calls outside of any are quick
	mu     sync.Mutex
	groups map[int]*group // by thread
}

// A process has one Library of each file, however often it is asked for: groups
// belong to the library and the thread.
var loaded struct {
	mu     sync.Mutex
	byPath map[string]*Library
}

// Load loads the NCCL at a path. With "" it takes what TUTTI_NCCL_LIBRARY names,
// or the first of what the loader finds, the wheel that PyTorch brings, and the
// usual folders; if there is none, the error is a *cuda.LibraryError that lists
// them. Libraries stay loaded.
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

// Available returns nil if NCCL and the CUDA driver can be loaded and there is a
// device file. It initialises neither.
func Available() error {
	if err := cuda.Available(); err != nil {
		return err
	}
	_, err := Load("")
	return err
}

// A Version is a version of NCCL.
type Version struct{ Major, Minor, Patch int }

// String writes it as people do: 2.28.9.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// Code is the number by which NCCL itself calls the version.
func (v Version) Code() int { return 10000*v.Major + 100*v.Minor + v.Patch }

// Version returns the library's version.
func (l *Library) Version() Version {
	c := l.sys.Version()
	return Version{c / 10000, c / 100 % 100, c % 100}
}

// Needs returns nil if the library is of that version or newer, and otherwise a
// *cuda.VersionError about what needs it.
func (l *Library) Needs(what string, v Version) error { return public(l.sys.Needs(what, v.Code())) }

// Path returns the library's path, or the name by which the loader found it.
func (l *Library) Path() string { return l.sys.Path() }

// Param returns the value of one of NCCL's parameters. It needs NCCL 2.30.
func (l *Library) Param(key string) (string, error) {
	v, err := l.sys.Param(key)
	return v, public(err)
}

// A UniqueID is what the ranks of a communicator find each other by.
type UniqueID [128]byte

// NewID makes an id. The process that made it must live until all ranks' Init
// has returned. Each id is for one communicator.
func (l *Library) NewID() (UniqueID, error) {
	id, err := l.sys.GetUniqueID()
	return id.Bytes, public(err)
}

// Alloc allocates device memory in the way that NCCL's registration and windows
// like best. The caller frees it. It needs NCCL 2.19.
func Alloc[T cuda.Elem](l *Library, d *cuda.Device, n int) (*cuda.Slice[T], error) {
	s, err := cuda.Adopt[T](d, n, l.sys.MemAlloc, func(ptr uintptr) error { return public(l.sys.MemFree(ptr)) })
	return s, public(err)
}
