package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tutti-go/tutti/internal/segment"
)

// proofTime is how long a neighbour may take to pass its proof.
const proofTime = 10 * time.Second

const proofKey = "proof"

// openDoor opens this process's door, and makes the memory that it will pass to
// those it meets there. A system may forbid either: many containers do not let a
// process make memory files.
func (j *Job) openDoor() (err error) {
	if j.door, err = segment.OpenDoor(); err != nil {
		return err
	}
	if j.proof, err = segment.New("tutti proof", 1); err != nil {
		err = errors.Join(err, j.door.Close())
		j.door = nil
		return err
	}
	if j.life, err = segment.Live(j.proof); err != nil {
		j.cfg.Logger.Debug("tutti: this process does not show others that it lives; they find out more slowly", "reason", err)
	}
	return nil
}

// prove passes a little memory to every neighbour and takes theirs, as groups
// will: that two processes can speak does not say that descriptors get through.
// It stays, because a neighbour's shows whether its process lives.
// With whom it does not work, no link remains, and the reason is added to errs.
func (j *Job) prove(ctx context.Context, errs map[int]error) error {
	ctx, cancel := context.WithTimeout(ctx, proofTime)
	defer cancel()
	j.proofs = make(map[int]*segment.Segment)
	drop := func(r int, err error) {
		errs[r] = err
		_ = j.links[r].Close() // and so the other side learns of it
		delete(j.links, r)
	}
	for r, l := range j.links {
		if err := l.Pass(segment.Root, proofKey, j.proof); err != nil {
			drop(r, fmt.Errorf("passing memory to it: %w", err))
		}
	}
	for r, l := range j.links {
		s, err := l.Take(ctx, segment.Root, proofKey)
		if err != nil {
			drop(r, fmt.Errorf("taking memory from it: %w", err))
			continue
		}
		j.proofs[r] = s
		if err := s.CloseFD(); err != nil {
			return err
		}
	}
	return j.proof.CloseFD()
}
