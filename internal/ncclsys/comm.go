package ncclsys

import (
	"math"
	"unsafe"

	"github.com/tutti-go/tutti/internal/dl"
)

// A UniqueID is ncclUniqueId, which identifies a communicator to its ranks. It is a struct
// because C passes it by value.
type UniqueID struct{ Bytes [128]byte }

// A Slot receives a communicator's handle. NCCL may write it after the call has returned, so
// it must be on the heap and be kept.
type Slot struct{ Handle uintptr }

// Undefined is NCCL_CONFIG_UNDEF_INT: the number is not set.
const Undefined = math.MinInt32

// Config is ncclConfig_t as of NCCL 2.30. Older versions read a prefix of it.
type Config struct {
	size                uintptr
	magic, version      uint32
	Blocking            int32
	CGAClusterSize      int32
	MinCTAs, MaxCTAs    int32
	NetName             *byte
	SplitShare          int32
	TrafficClass        int32
	CommName            *byte
	CollnetEnable       int32
	CTAPolicy           int32
	ShrinkShare         int32
	NvlsCTAs            int32
	NChannelsPerNetPeer int32
	NvlinkCentricSched  int32
	GraphUsageMode      int32
	NumRMACtx           int32
	MaxP2PPeers         int32
	GraphStreamOrdering int32
}

// NewConfig returns a Config in which only Blocking is set: NCCL before 2.17 requires it.
func NewConfig() *Config {
	const u = Undefined
	c := &Config{
		magic: 0xcafebeef, version: 23000, Blocking: 1,
		CGAClusterSize: u, MinCTAs: u, MaxCTAs: u, SplitShare: u, TrafficClass: u, CollnetEnable: u, CTAPolicy: u,
		ShrinkShare: u, NvlsCTAs: u, NChannelsPerNetPeer: u, NvlinkCentricSched: u, GraphUsageMode: u, NumRMACtx: u,
		MaxP2PPeers: u, GraphStreamOrdering: u,
	}
	c.size = unsafe.Sizeof(*c)
	return c
}

// GetUniqueID makes an id, and starts the rendezvous of the ranks in this process.
func (l *Library) GetUniqueID() (UniqueID, error) {
	fr := dl.NewFrame()
	defer fr.Done()
	id := new(UniqueID)
	err := l.call(fr, fnGetUniqueId, fr.Hold(0, unsafe.Pointer(id)))
	return *id, err
}

// CommInit makes a rank's communicator on the current device.
func (l *Library) CommInit(out *Slot, ranks int, id UniqueID, rank int, config *Config) error {
	return l.result(fnCommInitRankConfig, l.initConfig(out, int32(ranks), id, int32(rank), config))
}

// CommInitScalable is CommInit with several ids, which all ranks pass in the same order.
func (l *Library) CommInitScalable(out *Slot, ranks, rank int, ids []UniqueID, config *Config) error {
	fr := dl.NewFrame()
	defer fr.Done()
	return l.call(fr, fnCommInitRankScalable, fr.Hold(0, unsafe.Pointer(out)), uintptr(ranks), uintptr(rank),
		uintptr(len(ids)), fr.Hold(2, unsafe.Pointer(unsafe.SliceData(ids))), fr.Hold(1, unsafe.Pointer(config)))
}

// CommSplit makes a communicator of the ranks with one color. A rank with color -1 gets none.
func (l *Library) CommSplit(comm uintptr, color, key int, out *Slot, config *Config) error {
	fr := dl.NewFrame()
	defer fr.Done()
	return l.call(fr, fnCommSplit, comm, uintptr(color), uintptr(key), fr.Hold(0, unsafe.Pointer(out)), fr.Hold(1, unsafe.Pointer(config)))
}

// CommShrink makes a communicator without the excluded ranks.
func (l *Library) CommShrink(comm uintptr, exclude []int32, out *Slot, config *Config, flags int) error {
	fr := dl.NewFrame()
	defer fr.Done()
	return l.call(fr, fnCommShrink, comm, fr.Hold(2, unsafe.Pointer(unsafe.SliceData(exclude))), uintptr(len(exclude)),
		fr.Hold(0, unsafe.Pointer(out)), fr.Hold(1, unsafe.Pointer(config)), uintptr(flags))
}

// CommGetUniqueID makes an id with which new ranks join an existing communicator.
func (l *Library) CommGetUniqueID(comm uintptr) (UniqueID, error) {
	fr := dl.NewFrame()
	defer fr.Done()
	id := new(UniqueID)
	err := l.call(fr, fnCommGetUniqueId, comm, fr.Hold(0, unsafe.Pointer(id)))
	return *id, err
}

// CommGrow makes a communicator with more ranks. Existing ranks pass their communicator and
// rank -1, and one of them also the id. New ranks pass no communicator.
func (l *Library) CommGrow(comm uintptr, ranks int, id *UniqueID, rank int, out *Slot, config *Config) error {
	fr := dl.NewFrame()
	defer fr.Done()
	return l.call(fr, fnCommGrow, comm, uintptr(ranks), fr.Hold(2, unsafe.Pointer(id)), uintptr(rank),
		fr.Hold(0, unsafe.Pointer(out)), fr.Hold(1, unsafe.Pointer(config)))
}

// CommFinalize flushes the operations on a communicator.
func (l *Library) CommFinalize(comm uintptr) error { return l.simple(fnCommFinalize, comm) }

// CommDestroy frees a communicator.
func (l *Library) CommDestroy(comm uintptr) error { return l.simple(fnCommDestroy, comm) }

// CommAbort ends the operations on a communicator, and frees it.
func (l *Library) CommAbort(comm uintptr) error { return l.simple(fnCommAbort, comm) }

// CommRevoke ends the operations on a communicator, and keeps it.
func (l *Library) CommRevoke(comm uintptr) error { return l.simple(fnCommRevoke, comm, 0) }

// CommAsyncError returns the result code of the asynchronous operations.
func (l *Library) CommAsyncError(comm uintptr) (int, error) {
	return l.commNumber(fnCommGetAsyncError, comm)
}

// CommCount returns the number of ranks.
func (l *Library) CommCount(comm uintptr) (int, error) { return l.commNumber(fnCommCount, comm) }

// CommUserRank returns this rank's number in the communicator.
func (l *Library) CommUserRank(comm uintptr) (int, error) { return l.commNumber(fnCommUserRank, comm) }

// CommSuspend releases a communicator's memory until CommResume.
func (l *Library) CommSuspend(comm uintptr, flags int) error {
	return l.simple(fnCommSuspend, comm, uintptr(flags))
}

// CommResume undoes CommSuspend.
func (l *Library) CommResume(comm uintptr) error { return l.simple(fnCommResume, comm) }

// CommMemStats returns a statistic of a communicator's memory.
func (l *Library) CommMemStats(comm uintptr, stat int) (uint64, error) {
	fr := dl.NewFrame()
	defer fr.Done()
	err := l.call(fr, fnCommMemStats, comm, uintptr(stat), fr.Out(0))
	return fr.Result(0), err
}
