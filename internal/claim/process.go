package claim

// A process is what identifies a process for others that may be on its host.
type process struct {
	Host  string `json:"host"`  // of this boot, and the namespace of process ids; "": not known
	ID    int    `json:"id"`    // there
	Start string `json:"start"` // when it began, in the kernel's words; "": not known
}

// A fate is what this process knows of another.
type fate int

const (
	unknown fate = iota
	same         // it is this process
	living
	ended
)

// compare finds out what became of p. This process is me.
func (p process) compare(me process) fate {
	switch {
	case p.Host == "" || p.Host != me.Host:
		return unknown
	case p == me:
		return same
	}
	return p.look()
}
