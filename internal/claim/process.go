package claim

// A process identifies a process to other processes of its host.
type process struct {
	Host  string `json:"host"`  // the boot and the namespace of process ids; "": unknown
	ID    int    `json:"id"`    // the process id in that namespace
	Start string `json:"start"` // the start time, in the kernel's format; "": unknown
}

// A fate is the state of another process, as far as this process knows it.
type fate int

const (
	unknown fate = iota
	same         // it is this process
	living
	ended
)

// compare returns the state of p. This process is me.
func (p process) compare(me process) fate {
	switch {
	case p.Host == "" || p.Host != me.Host:
		return unknown
	case p == me:
		return same
	}
	return p.look()
}
