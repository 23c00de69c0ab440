package job

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/network"
	"github.com/tutti-go/tutti/internal/transport"
)

// A rank that closes a group after a call that waited for no rank asks the other members by the control
// channel whether they have begun that call. Both messages are positions, with these bytes behind
// them: what the message is, and the number of its sender in the group, which makes positions of
// different ranks differ.
const (
	settleAsk    = 1
	settleAnswer = 2
	settleBytes  = transport.HeadBytes + 5
)

const (
	// settleMembers is the largest group whose members are asked. All of them receive all answers.
	settleMembers = 32
	// settleTick is the time between two checks for ranks that have left the job.
	settleTick = 5 * time.Millisecond
	// maxClosedGroups bounds the closed groups that still answer.
	maxClosedGroups = 64
)

// A question is the last call of a member that has asked whether this rank has begun it.
type question struct {
	from int
	at   network.Position
}

// settle waits until all members have begun this rank's last call, if that waited for no rank. It ends
// with ctx, and when the group fails. The caller makes no call meanwhile.
func (p *reportedGroup) settle(ctx context.Context) {
	if !p.engine.Unconfirmed() || len(p.members) > settleMembers {
		return
	}
	p.mu.Lock()
	questions := p.questions
	p.mu.Unlock()
	for _, q := range questions { // their ranks may have left
		p.engine.CheckPosition(q.from, q.at)
	}
	p.mu.Lock()
	p.asked, p.missing = p.engine.Position(), nil
	for i, r := range p.members {
		if r != p.j.cfg.Rank {
			p.missing = append(p.missing, i)
		}
	}
	p.mu.Unlock()
	p.send(settleAsk, p.asked)
	tick := time.NewTicker(settleTick)
	defer tick.Stop()
	for {
		switch closed, left := p.unanswered(); {
		case closed >= 0:
			p.engine.FailClosed(closed)
			return
		case left == 0:
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-p.engine.Failed():
			return
		case <-p.answered:
		case <-tick.C:
		}
	}
}

// unanswered returns a member that has closed the group without this rank's last call, -1 if there is none,
// and the number of members whose answer is missing. A member that has left the job does not answer.
func (p *reportedGroup) unanswered() (closed, missing int) {
	left := append(p.j.member.Left(), p.j.member.Lost()...)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.missing = slices.DeleteFunc(p.missing, func(i int) bool { return slices.Contains(left, p.members[i]) })
	if len(p.behind) > 0 {
		return p.behind[0], len(p.missing)
	}
	return -1, len(p.missing)
}

// send sends a question or an answer to the members.
func (p *reportedGroup) send(what byte, at network.Position) {
	p.j.sendSettle(p.name, p.members, what, at)
}

func (j *Job) sendSettle(name string, members []int, what byte, at network.Position) {
	text := append(at[:len(at):len(at)], what)
	text = binary.LittleEndian.AppendUint32(text, uint32(slices.Index(members, j.cfg.Rank)))
	j.member.SendPosition(name, members, text)
}

// answerClosed answers questions after this rank has closed the group. It does not keep the engine.
func (p *reportedGroup) answerClosed() {
	j, name, members, last := p.j, p.name, p.members, p.engine.Position()
	j.member.HandlePositions(name, func(_ int, text []byte) {
		if len(text) == settleBytes && text[transport.HeadBytes] == settleAsk {
			go j.sendSettle(name, members, settleAnswer, last)
		}
	})
}

// receive handles a question or an answer of a member, on a goroutine of its own. It returns when this rank
// has answered, or the group has failed.
func (p *reportedGroup) receive(from int, text []byte) {
	at := network.Position(text[:transport.HeadBytes])
	p.engine.CheckPosition(from, at)
	if text[transport.HeadBytes] == settleAnswer {
		p.noteAnswer(from, at)
		return
	}
	p.mu.Lock()
	if len(p.questions) < len(p.members) { // a member asks once
		p.questions = append(p.questions, question{from, at})
	}
	p.mu.Unlock()
	select {
	case <-p.engine.Begun(at):
		p.engine.CheckPosition(from, at)
	case <-p.closed:
	case <-p.engine.Failed():
		return
	}
	p.send(settleAnswer, p.engine.Position())
}

// noteAnswer records that a member has begun the call of a position.
func (p *reportedGroup) noteAnswer(from int, at network.Position) {
	p.mu.Lock()
	if i := slices.Index(p.missing, from); i >= 0 {
		p.missing = slices.Delete(p.missing, i, i+1)
		if !at.Reaches(p.asked) {
			p.behind = append(p.behind, from)
		}
	}
	p.mu.Unlock()
	select {
	case p.answered <- struct{}{}:
	default:
	}
}

// Settle asks the other hosts' ranks about the last call, and then settles the wrapped engine.
func (n *networked) Settle(ctx context.Context) {
	if n.reported != nil {
		n.reported.settle(ctx)
	}
	engine.Settle(ctx, n.Engine)
}
