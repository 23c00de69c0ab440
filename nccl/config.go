package nccl

import (
	"math"

	"github.com/tutti-go/tutti/internal/dl"
	"github.com/tutti-go/tutti/internal/ncclsys"
)

// A Config configures a communicator, as ncclConfig_t. The zero value leaves everything to
// NCCL and its environment variables. Numbers are set with Set, so that 0 differs from
// unset. A field that the loaded NCCL does not support is a *cuda.VersionError. The
// versions below are those of NCCL that introduced the field.
type Config struct {
	// NonBlocking makes NCCL's calls return before they are complete, so that they can be
	// cancelled: Init, Split and the other constructors honour their contexts during the
	// call, and Abort ends any call. NCCL then launches from an extra thread, which is
	// slower. Without NonBlocking, a call that is stuck in NCCL when its context ends
	// stays behind on its thread.
	NonBlocking bool

	CGAClusterSize Int    // blocks in a cooperative group array, 0 to 8 (2.17)
	MinCTAs        Int    // minimum number of blocks (2.17)
	MaxCTAs        Int    // maximum number of blocks (2.17)
	NetName        string // the network module, such as "Socket"; "": NCCL chooses (2.17)
	SplitShare     Int    // 1: share resources with children made by Split (2.18)
	TrafficClass   Int    // the network's traffic class (2.25)
	CommName       string // a name for logs and profilers (2.27)
	CollnetEnable  Int    // 1: use the network's collectives (2.27)
	CTAPolicy      Int    // 0 default, 1 efficiency, 2 zero blocks (2.27)
	ShrinkShare    Int    // 1: share resources with children made by Shrink (2.27)
	NvlsCTAs       Int    // blocks for NVLink SHARP (2.27)

	ChannelsPerNetPeer  Int // channels to each rank over the network (2.28)
	NvlinkCentricSched  Int // 1: schedule for NVLink (2.28)
	GraphUsageMode      Int // CUDA graphs: 0 none, 1 one at a time, 2 several (2.29)
	RMAContexts         Int // contexts for PutSignal, Signal and WaitSignal (2.29)
	MaxP2PPeers         Int // ranks that are sent to at the same time (2.30)
	GraphStreamOrdering Int // order of streams in graphs (2.30)
}

// An Int is a number that may be unset. Its zero value is unset.
type Int struct {
	value int32
	set   bool
}

// Set returns an Int that is set.
func Set(v int) Int {
	// A number that does not fit into an int32 becomes NCCL_CONFIG_UNDEF_INT, which raw refuses.
	if v <= math.MinInt32 || v > math.MaxInt32 {
		return Int{ncclsys.Undefined, true}
	}
	return Int{int32(v), true}
}

// raw builds the ncclConfig_t. It and the strings that it points to are on the heap.
func (c Config) raw(l *Library) (*ncclsys.Config, error) {
	r := ncclsys.NewConfig()
	if c.NonBlocking {
		r.Blocking = 0
	}
	for _, f := range []struct {
		name  string
		value Int
		to    *int32
		since int
	}{
		{"CGAClusterSize", c.CGAClusterSize, &r.CGAClusterSize, 21700},
		{"MinCTAs", c.MinCTAs, &r.MinCTAs, 21700},
		{"MaxCTAs", c.MaxCTAs, &r.MaxCTAs, 21700},
		{"SplitShare", c.SplitShare, &r.SplitShare, 21800},
		{"TrafficClass", c.TrafficClass, &r.TrafficClass, 22500},
		{"CollnetEnable", c.CollnetEnable, &r.CollnetEnable, 22700},
		{"CTAPolicy", c.CTAPolicy, &r.CTAPolicy, 22700},
		{"ShrinkShare", c.ShrinkShare, &r.ShrinkShare, 22700},
		{"NvlsCTAs", c.NvlsCTAs, &r.NvlsCTAs, 22700},
		{"ChannelsPerNetPeer", c.ChannelsPerNetPeer, &r.NChannelsPerNetPeer, 22800},
		{"NvlinkCentricSched", c.NvlinkCentricSched, &r.NvlinkCentricSched, 22800},
		{"GraphUsageMode", c.GraphUsageMode, &r.GraphUsageMode, 22900},
		{"RMAContexts", c.RMAContexts, &r.NumRMACtx, 22900},
		{"MaxP2PPeers", c.MaxP2PPeers, &r.MaxP2PPeers, 23000},
		{"GraphStreamOrdering", c.GraphStreamOrdering, &r.GraphStreamOrdering, 23000},
	} {
		if !f.value.set {
			continue
		}
		if f.value.value == ncclsys.Undefined {
			return nil, invalid("Config.%s does not fit into an int", f.name)
		}
		if err := l.sys.Needs("Config."+f.name, f.since); err != nil {
			return nil, public(err)
		}
		*f.to = f.value.value
	}
	for _, f := range []struct {
		name, value string
		to          **byte
		since       int
	}{
		{"NetName", c.NetName, &r.NetName, 21700},
		{"CommName", c.CommName, &r.CommName, 22700},
	} {
		if f.value == "" {
			continue
		}
		if err := l.sys.Needs("Config."+f.name, f.since); err != nil {
			return nil, public(err)
		}
		*f.to = &dl.CString(f.value)[0]
	}
	return r, nil
}
