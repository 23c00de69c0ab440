// Package place finds out, from the environment, which rank a process is and
// where the ranks of its job meet.
package place

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// A Place is what the environment says about this process's part in a job.
type Place struct {
	From       string // who said so, for error messages
	Rank, Size int
	Addr       string // where rank 0 listens; "": not said
	Store      string // where ranks can exchange that address; "": nowhere
	Plain      bool   // the store is PyTorch's
	Epoch      string // how often the job was started again
	Name       string // what its launcher calls this process; "": nothing
	// Local says that all ranks are on this host, although Addr and Store may be
	// names by which other hosts reach it.
	Local bool
}

// Near is an address by which it is decided where ranks listen that meet in the
// store.
func (p *Place) Near() string {
	if p.Local && p.Store != "" {
		return Loopbacks(p.Store)[0]
	}
	return p.Store
}

// StayLocal has ranks that are all on this host use the loopback alone: rank 0
// listens there, at the port that was given, if any was.
func (p *Place) StayLocal() {
	if _, port, err := net.SplitHostPort(p.Addr); p.Local && err == nil && !OnLoopback(p.Addr) {
		p.Addr = net.JoinHostPort("127.0.0.1", port)
	}
}

// A source is one way of saying a place: who says it, the names of the two
// variables, and what else there is.
type source struct {
	from, rank, size string
	rest             func(p *Place, getenv func(string) string)
}

var torchrun = source{"torchrun", "RANK", "WORLD_SIZE", fromTorchrun}

// Find looks for a place: what tutti run and torchrun say first, then
// what Open MPI, PMI and Slurm say, who have no address. Without any of them it
// is nil: a world of one. The text says what is wrong.
func Find(getenv func(string) string) (p *Place, wrong string) {
	for _, s := range []source{
		{"tutti run", "TUTTI_RANK", "TUTTI_SIZE", fromTutti},
		torchrun,
		{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", noAddress},
		{"PMI", "PMI_RANK", "PMI_SIZE", noAddress},
		{"Slurm", "SLURM_PROCID", slurmSize(getenv), fromSlurm},
	} {
		if p, wrong = s.find(getenv); p != nil || wrong != "" {
			return p, wrong
		}
	}
	return nil, ""
}

// FindTorch looks for a place in a PyTorch job: that of torchrun's names alone,
// which tutti run sets too.
func FindTorch(getenv func(string) string) (p *Place, wrong string) { return torchrun.find(getenv) }

func (s source) find(getenv func(string) string) (p *Place, wrong string) {
	rank, size := getenv(s.rank), getenv(s.size)
	switch {
	case rank == "" && size == "", s.from == "Slurm" && (rank == "" || size == ""):
		return nil, ""
	case rank == "":
		return nil, fmt.Sprintf("%s is set but %s is not", s.size, s.rank)
	case size == "":
		// A world of one would be a wrong guess that nobody notices.
		return nil, fmt.Sprintf("%s is set but %s is not", s.rank, s.size)
	}
	p = &Place{From: s.from}
	var err error
	if p.Rank, err = strconv.Atoi(rank); err != nil {
		return nil, fmt.Sprintf("%s is %q, not a number", s.rank, rank)
	}
	if p.Size, err = strconv.Atoi(size); err != nil || p.Size < 1 {
		return nil, fmt.Sprintf("%s is %q, not a number of ranks", s.size, size)
	}
	s.rest(p, getenv)
	return p, ""
}

func fromTutti(p *Place, getenv func(string) string) {
	p.Store, p.Addr, p.Epoch, p.Name = getenv("TUTTI_STORE"), getenv("TUTTI_ADDR"), getenv("TUTTI_EPOCH"), getenv("TUTTI_NAME")
}

// fromTorchrun uses the store of torchrun's agent where there is one. Else
// nobody listens at the address, and rank 0 can.
func fromTorchrun(p *Place, getenv func(string) string) {
	size, err := strconv.Atoi(getenv("LOCAL_WORLD_SIZE"))
	p.Local = err == nil && size > 0 && size == p.Size
	host, port := getenv("MASTER_ADDR"), getenv("MASTER_PORT")
	if host == "" || port == "" {
		p.Addr = getenv("TUTTI_ADDR")
		return
	}
	addr := net.JoinHostPort(host, port)
	if agent, _ := strconv.ParseBool(getenv("TORCHELASTIC_USE_AGENT_STORE")); agent {
		p.Store, p.Plain, p.Epoch = addr, true, getenv("TORCHELASTIC_RESTART_COUNT")
		return
	}
	p.Addr = addr
}

// Late looks for the store of a job that is running, for a process that has no
// rank in it yet; nil if there is none.
func Late(getenv func(string) string) *Place {
	p := &Place{From: "tutti run"}
	if fromTutti(p, getenv); p.Store == "" {
		p.From = "torchrun"
		fromTorchrun(p, getenv)
	}
	if p.Store == "" {
		return nil
	}
	return p
}

func noAddress(p *Place, getenv func(string) string) { p.Addr = getenv("TUTTI_ADDR") }

// slurmSize names the variable with the number of ranks. Only srun sets the
// first; the second is also set in a batch script, which is no rank.
func slurmSize(getenv func(string) string) string {
	if getenv("SLURM_STEP_NUM_TASKS") != "" || getenv("SLURM_STEP_ID") == "" {
		return "SLURM_STEP_NUM_TASKS"
	}
	return "SLURM_NTASKS"
}

// fromSlurm takes the first host of the job, and a port that its number gives.
func fromSlurm(p *Place, getenv func(string) string) {
	p.Addr = getenv("TUTTI_ADDR")
	job, err := strconv.Atoi(getenv("SLURM_JOB_ID"))
	if p.Addr != "" || err != nil {
		return
	}
	host := FirstHost(getenv("SLURM_JOB_NODELIST"))
	if getenv("SLURM_JOB_NUM_NODES") == "1" {
		host = "127.0.0.1"
	}
	if host != "" {
		p.Addr = net.JoinHostPort(host, strconv.Itoa(20000+job%20000))
	}
}

// FirstHost returns the first host of a list in Slurm's form, such as
// "node[07-09,12],login1".
func FirstHost(list string) string {
	open := strings.IndexByte(list, '[')
	comma := strings.IndexByte(list, ',')
	if open < 0 || comma >= 0 && comma < open {
		host, _, _ := strings.Cut(list, ",")
		return host
	}
	numbers, rest, _ := strings.Cut(list[open+1:], "]")
	end := strings.IndexAny(numbers, "-,")
	if end < 0 {
		end = len(numbers)
	}
	suffix, _, _ := strings.Cut(rest, ",")
	return list[:open] + numbers[:end] + suffix
}

// OnLoopback reports whether an address is on the loopback.
func OnLoopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// MinSecret is how many bytes the secret of a job has at least that leaves its host.
// Every listener answers strangers with something that is made of the secret: a
// certificate, or a proof. They can try secrets on it, at leisure.
const MinSecret = 16

// CheckSecret says what is wrong with the secret of a job that leaves its host, and
// what to do about it; "" if nothing is.
func CheckSecret(secret string) string {
	const remedy = "openssl rand -hex 32 makes one; give all ranks and hosts of the job the same"
	switch {
	case secret == "":
		return "there is no secret; " + remedy
	case len(secret) < MinSecret:
		return fmt.Sprintf("the secret has %d bytes, and must have %d or more, at random; %s", len(secret), MinSecret, remedy)
	}
	return ""
}

// Loopbacks are addresses to listen on, with any port, for a job whose address is on
// the loopback: that of the same kind first.
func Loopbacks(addr string) []string {
	v4, v6 := "127.0.0.1:0", "[::1]:0"
	host, _, _ := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); ip != nil && ip.To4() == nil {
		return []string{v6, v4}
	}
	return []string{v4, v6}
}

// Hosts is which host of several a launcher runs on, and where it meets the
// others.
type Hosts struct {
	Nodes, Node int
	Addr        string
}

// FindHosts looks for what says how many hosts a job has: tutti's own names,
// with the index that Kubernetes gives the pods of a Job; its training
// operator's; and Slurm's. Without any of them it is one host.
func FindHosts(getenv func(string) string) (h Hosts, wrong string) {
	h = Hosts{Nodes: 1}
	number := func(n *int, names ...string) {
		for _, name := range names {
			text := getenv(name)
			if text == "" {
				continue
			}
			v, err := strconv.Atoi(text)
			if err != nil && wrong == "" {
				wrong = fmt.Sprintf("%s is %q, not a number", name, text)
			}
			*n = v
			return
		}
	}
	switch {
	case getenv("TUTTI_NODES") != "":
		number(&h.Nodes, "TUTTI_NODES")
		number(&h.Node, "TUTTI_NODE", "JOB_COMPLETION_INDEX")
		h.Addr = getenv("TUTTI_ADDR")
	case getenv("PET_NNODES") != "":
		number(&h.Nodes, "PET_NNODES")
		number(&h.Node, "PET_NODE_RANK", "RANK")
		h.Addr = net.JoinHostPort(getenv("MASTER_ADDR"), getenv("MASTER_PORT"))
	case getenv("SLURM_STEP_ID") != "" && getenv("SLURM_NNODES") != "":
		number(&h.Nodes, "SLURM_NNODES")
		number(&h.Node, "SLURM_NODEID")
		p := new(Place)
		fromSlurm(p, getenv)
		h.Addr = p.Addr
	}
	return h, wrong
}
