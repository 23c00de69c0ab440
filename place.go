package tutti

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// A place is what the environment says about this process's part in a job.
type place struct {
	from       string // who said so, for error messages
	rank, size int
	addr       string // where rank 0 listens; "": not said
	store      string // where ranks can exchange that address; "": nowhere
	plain      bool   // the store is PyTorch's
	epoch      string // how often the job was started again
}

// findPlace looks for a place: what tutti run and torchrun say first, then
// what Open MPI, PMI and Slurm say, who have no address. Without any of them it
// is nil: a world of one. The text says what is wrong.
func findPlace(getenv func(string) string) (p *place, wrong string) {
	for _, f := range []struct {
		from, rank, size string
		rest             func(p *place, getenv func(string) string)
	}{
		{"tutti run", "TUTTI_RANK", "TUTTI_SIZE", fromTutti},
		{"torchrun", "RANK", "WORLD_SIZE", fromTorchrun},
		{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", noAddress},
		{"PMI", "PMI_RANK", "PMI_SIZE", noAddress},
		{"Slurm", "SLURM_PROCID", slurmSize(getenv), fromSlurm},
	} {
		rank, size := getenv(f.rank), getenv(f.size)
		if size == "" || rank == "" && f.from == "Slurm" {
			continue
		}
		if rank == "" {
			return nil, fmt.Sprintf("%s is set but %s is not", f.size, f.rank)
		}
		p := &place{from: f.from}
		var err error
		if p.rank, err = strconv.Atoi(rank); err != nil {
			return nil, fmt.Sprintf("%s is %q, not a number", f.rank, rank)
		}
		if p.size, err = strconv.Atoi(size); err != nil || p.size < 1 {
			return nil, fmt.Sprintf("%s is %q, not a number of ranks", f.size, size)
		}
		f.rest(p, getenv)
		return p, ""
	}
	return nil, ""
}

func fromTutti(p *place, getenv func(string) string) {
	p.store, p.addr, p.epoch = getenv("TUTTI_STORE"), getenv("TUTTI_ADDR"), getenv("TUTTI_EPOCH")
}

// fromTorchrun uses the store of torchrun's agent where there is one. Else
// nobody listens at the address, and rank 0 can.
func fromTorchrun(p *place, getenv func(string) string) {
	host, port := getenv("MASTER_ADDR"), getenv("MASTER_PORT")
	if host == "" || port == "" {
		p.addr = getenv("TUTTI_ADDR")
		return
	}
	addr := net.JoinHostPort(host, port)
	if agent, _ := strconv.ParseBool(getenv("TORCHELASTIC_USE_AGENT_STORE")); agent {
		p.store, p.plain, p.epoch = addr, true, getenv("TORCHELASTIC_RESTART_COUNT")
		return
	}
	p.addr = addr
}

func noAddress(p *place, getenv func(string) string) { p.addr = getenv("TUTTI_ADDR") }

// slurmSize names the variable with the number of ranks. Only srun sets the
// first; the second is also set in a batch script, which is no rank.
func slurmSize(getenv func(string) string) string {
	if getenv("SLURM_STEP_NUM_TASKS") != "" || getenv("SLURM_STEP_ID") == "" {
		return "SLURM_STEP_NUM_TASKS"
	}
	return "SLURM_NTASKS"
}

// fromSlurm takes the first host of the job, and a port that its number gives.
func fromSlurm(p *place, getenv func(string) string) {
	p.addr = getenv("TUTTI_ADDR")
	job, err := strconv.Atoi(getenv("SLURM_JOB_ID"))
	if p.addr != "" || err != nil {
		return
	}
	host := firstHost(getenv("SLURM_JOB_NODELIST"))
	if getenv("SLURM_JOB_NUM_NODES") == "1" {
		host = "127.0.0.1"
	}
	if host != "" {
		p.addr = net.JoinHostPort(host, strconv.Itoa(20000+job%20000))
	}
}

// firstHost returns the first host of a list in Slurm's form, such as
// "node[07-09,12],login1".
func firstHost(list string) string {
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

// onLoopback reports whether an address is on the loopback.
func onLoopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
