package tutti

import (
	"context"
	"os"

	"github.com/tutti-go/tutti/internal/membership"
)

// Join joins this process to the others of its job and returns when all have
// joined: its Comm with all of them. When ctx ends before that, the error says
// who is missing, as far as this rank can know.
//
// Which rank this is, of how many, and where they meet is what cfg says. If its
// Size is zero, it is what the environment says: that of tutti run, of torchrun,
// or else of Open MPI, PMI or Slurm, which may need Config.Addr or TUTTI_ADDR
// beside it. Without any of them it is a world of one.
//
// A Join that failed may be called again, also while other ranks wait in theirs. A
// process that ended while it waited in Join may be replaced by another one of its
// rank. While it lives, that one is refused, and the error names the process that
// is there. Whether a process of another host lives may take some seconds to find
// out, and up to Config.Silence where there is no store and its host has failed.
//
// With Config.Late the process joins a job that is running, when that grows.
//
// Ranks of one host use shared memory, others the network, encrypted unless
// Config.Plain is set.
func Join(ctx context.Context, cfg Config) (*Comm, error) {
	cfg.fill()
	located := cfg.membership()
	wrong := located.Locate(os.Getenv)
	fail := func(err error) (*Comm, error) {
		return nil, &Error{Op: "Join", Rank: located.Rank, Cause: err}
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
