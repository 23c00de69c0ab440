// Package launchenv reads the environment that launchers set: the rank of this process,
// the size of its job, and the address for the rendezvous.
package launchenv

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/tutti-go/tutti/internal/envvar"
)

// A Place is this process's part in a job, as described by the environment.
type Place struct {
	From       string // launcher that set the variables, for error messages
	Rank, Size int
	Addr       string // where rank 0 listens; "": unknown
	Store      string // store for the rendezvous; "": none
	Plain      bool   // the store is PyTorch's, without authentication
	Attempt    string // number of the job's attempt, from 0
	Name       string // unique name that the launcher assigned to this process; "": none
	// Local is set if all ranks are on this host, even if Addr and Store are names that
	// other hosts use.
	Local bool
}

// Near returns an address that determines the interface on which the ranks listen; ""
// if there is no store.
func (p *Place) Near() string {
	if p.Local && p.Store != "" {
		return Loopbacks(p.Store)[0]
	}
	return p.Store
}

// StayLocal restricts a job on this host to the loopback interface. Rank 0 listens
// there at the port of Addr.
func (p *Place) StayLocal() {
	if _, port, err := net.SplitHostPort(p.Addr); p.Local && err == nil && !OnLoopback(p.Addr) {
		p.Addr = net.JoinHostPort("127.0.0.1", port)
	}
}

// A source is one launcher's environment: its name, the variables for rank and size,
// and a function that reads the rest and describes a mistake in it.
type source struct {
	from, rank, size string
	rest             func(p *Place, getenv func(string) string) (wrong string)
}

var torchrun = source{"torchrun", "RANK", "WORLD_SIZE", fromTorchrun}

// Find reads the environments of tutti run and torchrun, and then those of Open MPI,
// PMI and Slurm, which have no address. p is nil if none is set: the job has one rank.
// wrong describes a mistake; "" if there is none.
func Find(getenv func(string) string) (p *Place, wrong string) {
	for _, s := range []source{
		{"tutti run", "TUTTI_RANK", "TUTTI_SIZE", fromTutti},
		torchrun,
		{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", fromTutti},
		{"PMI", "PMI_RANK", "PMI_SIZE", fromTutti},
		{"Slurm", "SLURM_PROCID", slurmSize(getenv), fromSlurm},
	} {
		if p, wrong = s.find(getenv); p != nil || wrong != "" {
			return p, wrong
		}
	}
	return nil, ""
}

// FindTorch reads torchrun's variables alone, which tutti run sets, too.
func FindTorch(getenv func(string) string) (p *Place, wrong string) { return torchrun.find(getenv) }

// find returns the place that the source's variables describe, or nil if they are not
// set. wrong describes a mistake in them; "" if there is none.
func (s source) find(getenv func(string) string) (p *Place, wrong string) {
	rank, size := getenv(s.rank), getenv(s.size)
	switch {
	case rank == "" && size == "", s.from == "Slurm" && (rank == "" || size == ""):
		return nil, ""
	case rank == "":
		return nil, fmt.Sprintf("%s is set but %s is not", s.size, s.rank)
	case size == "":
		// Assuming a job of one rank would hide the mistake.
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
	if wrong = s.rest(p, getenv); wrong != "" {
		return nil, wrong
	}
	return p, ""
}

// address reads a variable with an address; "" if it is not set.
func address(getenv func(string) string, name string) (addr, wrong string) {
	addr = getenv(name)
	if _, _, err := net.SplitHostPort(addr); addr != "" && err != nil {
		return "", fmt.Sprintf("%s is %q, not host:port", name, addr)
	}
	return addr, ""
}

// fromTutti reads the job's store, and the address. A store may also be served for ranks that
// another launcher starts.
func fromTutti(p *Place, getenv func(string) string) (wrong string) {
	p.Name = getenv("TUTTI_NAME")
	if p.Store, wrong = address(getenv, "TUTTI_STORE"); wrong == "" {
		p.Addr, wrong = address(getenv, "TUTTI_ADDR")
	}
	for _, name := range []string{"TUTTI_ATTEMPT", "TUTTI_EPOCH"} { // a launcher of an older version sets only TUTTI_EPOCH
		if p.Attempt == "" {
			p.Attempt = getenv(name)
		}
		if n, err := envvar.Int(getenv, name, 0); (err != nil || n < 0) && wrong == "" {
			wrong = fmt.Sprintf("%s is %q, not the number of an attempt", name, getenv(name))
		}
	}
	return wrong
}

// fromTorchrun uses the store of the job, or that of torchrun's agent if there is one.
// Otherwise the address is free for rank 0.
func fromTorchrun(p *Place, getenv func(string) string) (wrong string) {
	size, err := strconv.Atoi(getenv("LOCAL_WORLD_SIZE"))
	p.Local = err == nil && size > 0 && size == p.Size
	host, port := getenv("MASTER_ADDR"), getenv("MASTER_PORT")
	if host == "" || port == "" || getenv("TUTTI_STORE") != "" {
		return fromTutti(p, getenv)
	}
	addr := net.JoinHostPort(host, port)
	if agent, _ := strconv.ParseBool(getenv("TORCHELASTIC_USE_AGENT_STORE")); agent {
		p.Store, p.Plain, p.Attempt = addr, true, getenv("TORCHELASTIC_RESTART_COUNT")
		return ""
	}
	p.Addr = addr
	return ""
}

// Late reads the store of a running job, for a process that has no rank in it yet. wrong describes
// a mistake; "" if there is none.
func Late(getenv func(string) string) (p *Place, wrong string) {
	if p, wrong = Store(getenv); wrong == "" && p == nil {
		p = &Place{From: "torchrun"}
		wrong = fromTorchrun(p, getenv)
	}
	switch {
	case wrong != "":
		return nil, wrong
	case p.Store == "":
		return nil, "the address of the running job's store is not set (TUTTI_STORE)"
	}
	return p, ""
}

// Store reads the job's store alone, for a process that knows its rank, if any, from elsewhere. p is
// nil if there is none.
func Store(getenv func(string) string) (p *Place, wrong string) {
	p = &Place{From: "TUTTI_STORE"}
	if wrong = fromTutti(p, getenv); wrong != "" || p.Store == "" {
		return nil, wrong
	}
	return p, ""
}

// slurmSize names the variable with the number of ranks. Only srun sets the first. A
// batch script, which is not a rank, has the second, too.
func slurmSize(getenv func(string) string) string {
	if getenv("SLURM_STEP_NUM_TASKS") != "" || getenv("SLURM_STEP_ID") == "" {
		return "SLURM_STEP_NUM_TASKS"
	}
	return "SLURM_NTASKS"
}

// fromSlurm derives the address from the job's first host and its job id, if nothing names a
// store or an address.
func fromSlurm(p *Place, getenv func(string) string) (wrong string) {
	if wrong = fromTutti(p, getenv); wrong == "" && p.Store == "" && p.Addr == "" {
		p.Addr = slurmAddr(getenv)
	}
	return wrong
}

// slurmAddr returns an address on the job's first host; "" if Slurm has not set enough variables.
func slurmAddr(getenv func(string) string) string {
	job, err := strconv.Atoi(getenv("SLURM_JOB_ID"))
	host := FirstHost(getenv("SLURM_JOB_NODELIST"))
	if getenv("SLURM_JOB_NUM_NODES") == "1" {
		host = "127.0.0.1"
	}
	if err != nil || host == "" {
		return ""
	}
	return net.JoinHostPort(host, strconv.Itoa(20000+job%20000))
}

// FirstHost returns the first host of a list in Slurm's syntax, such as
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

// OnLoopback reports whether an address is on the loopback interface.
func OnLoopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// MinSecret is the minimal length in bytes of the secret of a job on several hosts.
// Every listener answers unauthenticated clients with a value derived from the secret,
// such as a certificate. A client can test guesses against it offline.
const MinSecret = 16

// CheckSecret describes what is wrong with the secret of a job on several hosts, and
// what to do; "" if it is valid.
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

// Loopbacks returns loopback addresses to listen on, with any port. The IP version of
// addr comes first.
func Loopbacks(addr string) []string {
	v4, v6 := "127.0.0.1:0", "[::1]:0"
	host, _, _ := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); ip != nil && ip.To4() == nil {
		return []string{v6, v4}
	}
	return []string{v4, v6}
}

// Hosts is the number of this launcher's host, the number of hosts, and the address of
// node 0.
type Hosts struct {
	Nodes, Node int
	Addr        string
}

// FindHosts reads the number of hosts of a job: from tutti's own variables, with the
// index that Kubernetes assigns to the pods of a Job; from those of its training
// operator; or from Slurm's. The default is one host.
func FindHosts(getenv func(string) string) (h Hosts, wrong string) {
	h = Hosts{Nodes: 1}
	number := func(n *int, names ...string) {
		for _, name := range names {
			if getenv(name) == "" {
				continue
			}
			v, err := envvar.Int(getenv, name, 0)
			if err != nil && wrong == "" {
				wrong = err.Error()
			}
			*n = v
			return
		}
	}
	switch {
	case getenv("TUTTI_NODES") != "":
		number(&h.Nodes, "TUTTI_NODES")
		number(&h.Node, "TUTTI_NODE", "JOB_COMPLETION_INDEX")
		addr, bad := address(getenv, "TUTTI_ADDR")
		h.Addr, wrong = addr, cmp.Or(wrong, bad)
	case getenv("TUTTI_NODE") != "":
		wrong = "TUTTI_NODE is set but TUTTI_NODES is not"
	case getenv("PET_NNODES") != "":
		number(&h.Nodes, "PET_NNODES")
		number(&h.Node, "PET_NODE_RANK", "RANK")
		h.Addr = net.JoinHostPort(getenv("MASTER_ADDR"), getenv("MASTER_PORT"))
	case getenv("SLURM_STEP_ID") != "" && getenv("SLURM_NNODES") != "":
		number(&h.Nodes, "SLURM_NNODES")
		number(&h.Node, "SLURM_NODEID")
		addr, bad := address(getenv, "TUTTI_ADDR")
		h.Addr, wrong = cmp.Or(addr, slurmAddr(getenv)), cmp.Or(wrong, bad)
	}
	return h, wrong
}
