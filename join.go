package tutti

import (
	"context"
	"os"

	"github.com/tutti-go/tutti/internal/membership"
)

// Join joins this process to the other processes of its job. It returns a Comm with
// all of them when all have called Join. ctx bounds the wait, or five minutes if it has no
// deadline; Config.Timeout is for operations. Every ten seconds the Logger of rank 0 gets
// the missing ranks, or that of another rank if rank 0 is missing. If ctx ends first, the
// error names the missing ranks, on every rank that can reach rank 0 or the job's store.
//
// Config holds the rank, the size, and the address of rank 0. If Config.Size is zero,
// they come from the environment of tutti run, of torchrun, or of Open MPI, PMI or
// Slurm. The last three may need Config.Addr or TUTTI_ADDR in addition. Without any of
// these, the job has one rank.
//
// A Join that failed may be called again, also while other ranks wait in theirs. A new
// process may replace one that exited while it waited in Join. As long as the old
// process runs, the new one is refused, and the error names the old one. It may take
// some seconds to find out whether a process on another host runs, and up to
// Config.HostTimeout if the job has no store and that host has failed.
//
// With Config.Late the process joins a running job when the ranks of that call Grow. ctx
// alone bounds that wait. Config.Timeout bounds the time from the decision on.
//
// Ranks of one host use shared memory, others the network, encrypted unless
// Config.NoEncryption is set.
func Join(ctx context.Context, cfg Config) (*Comm, error) {
	err := cfg.fill()
	located := cfg.membership()
	wrong := located.Locate(os.Getenv)
	if err != nil {
		wrong = err.Error()
	}
	fail := func(err error) (*Comm, error) {
		rank := located.Rank
		if located.Late {
			rank = -1
		}
		return nil, &Error{Op: "Join", Rank: rank, Cause: err}
	}
	if ctx == nil {
		return fail(&cause{kind: ErrInvalid, reason: errNilContext.Error()})
	}
	if wrong == "" {
		wrong = located.Validate()
	}
	if wrong != "" {
		return fail(&cause{kind: ErrInvalid, reason: wrong})
	}
	m, err := membership.Join(ctx, located)
	if err != nil {
		return fail(err)
	}
	return newComm(m, cfg.reporter(m)), nil
}
