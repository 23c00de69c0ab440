package tutti

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/internal/claim"
	"github.com/tutti-go/tutti/internal/control"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/job"
	"github.com/tutti-go/tutti/internal/launchenv"
	"github.com/tutti-go/tutti/store"
)

// askTime is how long a rank that has failed to join asks who is missing, and how
// long one that has not reached the store in time tries once more.
const askTime = 2 * time.Second

// takenPause is how long a rank waits before it asks rank 0 again for a place that a
// process that has ended still has. Rank 0 waits a while itself before it refuses.
const takenPause = 100 * time.Millisecond

// A meeting is how ranks find rank 0 through a store: a launcher's, or that of
// torchrun's agent.
//
// Each Join of rank 0 is an attempt, which has a number: rank 0 puts what it is
// into the first key of "attempt/1", "attempt/2" and so on that is not there, and
// then its address, as text, into "address/1" and so on. A rank 0 of protocol 1 has
// the address alone, and other ranks of that protocol read nothing else: so ranks
// of both reach each other, and the control channel refuses them in words. The
// others connect to the last one, and give it up for the next one when that
// appears. So attempts of rank 0 and of the others need not begin together, and
// each Join that fails can be called again. No rank uses an attempt in which its
// rank has joined before: that job is over.
//
// Comms are named after their line. The first attempt that succeeds has the
// first line; "line/N" says which attempt has line N, so that no two have the
// same. Rank 0 proposes it with its address.
type meeting struct {
	cfg      *Config
	client   *store.Client
	store    store.Store
	site     *processes
	claim    *claim.Claim // on this rank
	listener net.Listener // rank 0's
	joining  bool         // the address is known
	last     membership   // the last one of this rank; zero: none
	now      membership
	keeping  chan struct{} // closed when Keep has returned
}

// A membership is a job that this rank has joined, or is about to join.
type membership struct {
	Attempt int64  `json:"attempt"`
	Line    int64  `json:"line"`
	Addr    string `json:"addr"`
	Token   string `json:"token"` // of the process's claim; rank 0's in "attempt/N"
}

// errNewer ends an attempt when rank 0 has begun another one.
var errNewer = errors.New("rank 0 has begun another attempt")

// meet reaches the store, and makes this process the only one of its rank.
func meet(ctx context.Context, cfg *Config, p *launchenv.Place) (*meeting, error) {
	m := &meeting{cfg: cfg, site: newProcesses(cfg, p)}
	var err error
	if m.client, m.store, err = m.site.dial(ctx); err != nil {
		return nil, err
	}
	if err = m.enlist(ctx); err == nil {
		m.last, err = m.read(ctx, m.key("joined"))
	}
	if err != nil {
		if m.claim != nil {
			err = m.failed(err)
		}
		m.close()
		return nil, err
	}
	return m, nil
}

// enlist makes sure that this process is the only one of its rank, and that it
// believes in as many ranks as the others do. The job is told of one that is
// refused.
func (m *meeting) enlist(ctx context.Context) error {
	refuse := func(text string) error {
		_ = m.store.Push(ctx, "refused", []byte(claim.Name()+": "+text))
		return fmt.Errorf("%s is refused: %s", claim.Name(), text)
	}
	size := strconv.Itoa(m.cfg.Size)
	theirs, err := m.store.CompareAndSet(ctx, "size", nil, []byte(size))
	if err != nil {
		return err
	}
	if string(theirs) != size {
		return refuse(fmt.Sprintf("it believes in %s ranks, this job has %s; all must be told the same", size, theirs))
	}
	m.claim, err = claim.Take(ctx, m.store, m.key("rank"), claim.Options{Using: m.inUse})
	if taken := (*claim.TakenError)(nil); errors.As(err, &taken) {
		return refuse(fmt.Sprintf("rank %d is here already: %s", m.cfg.Rank, taken.Holder))
	}
	return err
}

// inUse reports whether the process of this rank that made a claim is a member of
// a job whose rank 0 listens.
func (m *meeting) inUse(ctx context.Context, token string) bool {
	job, err := m.read(ctx, m.key("joined"))
	if err != nil || job.Token != token {
		return false
	}
	d := net.Dialer{Timeout: askTime}
	c, err := d.DialContext(ctx, "tcp", job.Addr)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// read returns the membership that a key holds; zero if it is not there.
func (m *meeting) read(ctx context.Context, key string) (job membership, err error) {
	there, err := m.store.Check(ctx, key)
	if err != nil || !there {
		return job, err
	}
	return m.await(ctx, key)
}

// await waits until a key holds a membership.
func (m *meeting) await(ctx context.Context, key string) (job membership, err error) {
	text, err := m.store.Get(ctx, key)
	if err != nil {
		return job, err
	}
	if len(text) == 0 {
		return job, nil // it was noted by a process of protocol 1
	}
	if err := json.Unmarshal(text, &job); err != nil || job.Attempt < 1 || job.Line < 1 {
		return job, fmt.Errorf("the store's key %q holds something else than where rank 0 is: %.40q", key, text)
	}
	return job, nil
}

// awaitAttempt waits until rank 0 listens in an attempt.
func (m *meeting) awaitAttempt(ctx context.Context, number int64) (membership, error) {
	addr, err := m.store.Get(ctx, address(number))
	if err != nil {
		return membership{}, err
	}
	job, err := m.read(ctx, attempt(number))
	if job.Attempt == 0 {
		job = membership{Attempt: number, Line: number, Addr: string(addr)} // rank 0 is of protocol 1
	}
	return job, err
}

// keep holds the claim while this process joins. The context that it returns ends
// when another process has taken it over.
func (m *meeting) keep(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	m.keeping = make(chan struct{})
	go func() {
		defer close(m.keeping)
		if err := m.claim.Keep(ctx); err != nil {
			cancel(err)
		}
	}()
	return ctx, cancel
}

// join finds out where rank 0 listens, or says it, and joins.
func (m *meeting) join(ctx context.Context) (*job.Job, error) {
	kept, cancel := m.keep(ctx)
	var j *job.Job
	var err error
	if m.cfg.Rank == 0 {
		j, err = m.lead(kept)
	} else {
		j, err = m.find(kept)
	}
	if err == nil {
		err = m.note(kept)
	}
	if lost := (*claim.LostError)(nil); err != nil && errors.As(context.Cause(kept), &lost) {
		err = lost
	}
	cancel(nil)
	<-m.keeping
	if err == nil {
		err = m.claim.Confirm(ctx)
	}
	if err != nil && j != nil {
		err = errors.Join(err, j.Abandon(err))
	}
	if err != nil {
		return nil, err
	}
	return j, nil
}

func attempt(number int64) string  { return "attempt/" + strconv.FormatInt(number, 10) }
func address(attempt int64) string { return "address/" + strconv.FormatInt(attempt, 10) }
func line(number int64) string     { return "line/" + strconv.FormatInt(number, 10) }

// lead is rank 0's way to join: it begins an attempt.
func (m *meeting) lead(ctx context.Context) (*job.Job, error) {
	m.now = membership{Attempt: m.last.Attempt + 1, Line: m.last.Line + 1, Token: m.claim.Token()}
	for {
		taken, err := m.store.Check(ctx, line(m.now.Line))
		if err != nil {
			return nil, err
		}
		if !taken {
			break
		}
		m.now.Line++
	}
	var err error
	if m.now.Addr, m.listener, err = listenNear(ctx, m.site.near); err != nil {
		return nil, err
	}
	for {
		mine, err := json.Marshal(m.now)
		if err != nil {
			return nil, err
		}
		theirs, err := m.store.CompareAndSet(ctx, attempt(m.now.Attempt), nil, mine)
		if err != nil {
			return nil, err
		}
		// A process that died before it had said its address is passed over by all.
		var first membership
		if err := json.Unmarshal(theirs, &first); err != nil {
			return nil, fmt.Errorf("the store's key %q holds something else than an attempt: %w", attempt(m.now.Attempt), err)
		}
		if _, err := m.store.CompareAndSet(ctx, address(m.now.Attempt), nil, []byte(first.Addr)); err != nil {
			return nil, err
		}
		if string(theirs) == string(mine) {
			break
		}
		m.now.Attempt++
	}
	m.joining = true
	return m.cfg.enter(ctx, 0, m.cfg.Size, m.now.Addr, m.listener, []byte(m.cfg.Secret))
}

// find is the other ranks' way to join: it follows the attempts of rank 0.
func (m *meeting) find(ctx context.Context) (*job.Job, error) {
	var before error // rank 0 was still connected to an earlier process of this rank
	for attempt := m.last.Attempt + 1; ; attempt++ {
		m.joining = false
		if err := m.latest(ctx, attempt); err != nil {
			return nil, err
		}
		attempt = m.now.Attempt
		m.joining = true
		j, err := m.follow(ctx)
		gone, taken := (*control.RootLostError)(nil), (*control.TakenError)(nil)
		switch {
		case err == nil:
			return j, nil
		case ctx.Err() != nil && before != nil:
			return nil, fmt.Errorf("%w; until then %w", err, before)
		case ctx.Err() != nil:
			return nil, err
		case errors.Is(err, errNewer):
		case errors.As(err, &taken):
			// Another process is connected to rank 0 as this rank. It has ended, because
			// this process holds the rank's claim; rank 0 will notice soon.
			before = err
			select {
			case <-ctx.Done():
				return nil, fmt.Errorf("%w: %w", before, ctx.Err())
			case <-time.After(takenPause):
			}
			attempt-- // the same again
		case errors.As(err, &gone): // another process may take its place
			if e := m.store.Wait(ctx, address(attempt+1)); e != nil {
				return nil, fmt.Errorf("%w, and has not come again: %w", err, e)
			}
		default:
			return nil, err
		}
	}
}

// latest waits for an attempt, and goes on to the last one there is.
func (m *meeting) latest(ctx context.Context, attempt int64) (err error) {
	for there := true; there; attempt++ {
		if m.now, err = m.awaitAttempt(ctx, attempt); err != nil {
			return err
		}
		if there, err = m.store.Check(ctx, address(attempt+1)); err != nil {
			return err
		}
	}
	return nil
}

// follow joins rank 0 in an attempt. The error is errNewer if there is a newer one.
func (m *meeting) follow(ctx context.Context) (*job.Job, error) {
	try, cancel := context.WithCancelCause(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		if m.store.Wait(try, address(m.now.Attempt+1)) == nil {
			cancel(errNewer)
		}
	}()
	j, err := m.cfg.enter(try, m.cfg.Rank, m.cfg.Size, m.now.Addr, nil, []byte(m.cfg.Secret))
	newer := errors.Is(context.Cause(try), errNewer)
	cancel(nil)
	<-over
	if err != nil && newer {
		return nil, errNewer
	}
	return j, err
}

func (m *meeting) key(kind string) string { return kind + "/" + strconv.Itoa(m.cfg.Rank) }

// listenNear listens where those can come who reach the store: on the loopback
// if it is there, and else on all interfaces.
func listenNear(ctx context.Context, at string) (string, net.Listener, error) {
	var lc net.ListenConfig
	if launchenv.OnLoopback(at) {
		var errs []error
		for _, near := range launchenv.Loopbacks(at) {
			l, err := lc.Listen(ctx, "tcp", near)
			if err == nil {
				return l.Addr().String(), l, nil
			}
			errs = append(errs, err)
		}
		return "", nil, errors.Join(errs...)
	}
	// No packet is sent: this only asks for the way to the store.
	var d net.Dialer
	way, err := d.DialContext(ctx, "udp", at)
	if err != nil {
		return "", nil, err
	}
	defer way.Close()
	l, err := lc.Listen(ctx, "tcp", ":0")
	if err != nil {
		return "", nil, err
	}
	host, _, _ := net.SplitHostPort(at)
	if ip := way.LocalAddr().(*net.UDPAddr).IP; !ip.IsLoopback() {
		host = ip.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(l.Addr().(*net.TCPAddr).Port)), l, nil
}

// note makes the line this job's, and tells those who look into the store that
// this rank has joined.
func (m *meeting) note(ctx context.Context) error {
	mine := strconv.FormatInt(m.now.Attempt, 10)
	theirs, err := m.store.CompareAndSet(ctx, line(m.now.Line), nil, []byte(mine))
	if err != nil {
		return err
	}
	if string(theirs) != mine {
		return fmt.Errorf("attempt %s of rank 0 was joined at the same time as attempt %s; call Join again", theirs, mine)
	}
	m.now.Token = m.claim.Token()
	text, err := json.Marshal(m.now)
	if err != nil {
		return err
	}
	return m.store.Set(ctx, m.key("joined"), text)
}

// failed gives this process's rank back, so that another process can take it. If Join
// failed because the time of this rank or of rank 0 was up, the error that failed returns
// names the missing ranks. A rank that has given up is not missing.
func (m *meeting) failed(err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	if !slices.ContainsFunc([]error{context.DeadlineExceeded, context.Canceled, io.EOF, syscall.ECONNRESET},
		func(e error) bool { return errors.Is(err, e) }) {
		m.claim.Release(ctx)
		return err
	}
	m.claim.Leave(ctx)
	if m.cfg.Rank == 0 && m.joining { // rank 0's error names the missing ranks already
		return err
	}
	missing, e := m.missing(ctx)
	if e != nil || len(missing) == 0 {
		return err
	}
	return fmt.Errorf("%d of %d ranks joined; %s missing: %w", m.cfg.Size-len(missing), m.cfg.Size, engine.Ranks(missing), err)
}

// missing returns the ranks of which no process has come, or only ones that were
// refused: their claims are empty.
func (m *meeting) missing(ctx context.Context) ([]int, error) {
	keys, err := m.store.List(ctx)
	if err != nil {
		return nil, err
	}
	var ranks []int
	var claims []string
	for _, k := range keys {
		if text, ok := strings.CutPrefix(k, "rank/"); ok {
			if r, e := strconv.Atoi(text); e == nil && r >= 0 && r < m.cfg.Size {
				ranks, claims = append(ranks, r), append(claims, k)
			}
		}
	}
	var values [][]byte
	if len(claims) > 0 {
		if values, err = m.store.MultiGet(ctx, claims...); err != nil {
			return nil, err
		}
	}
	here := make([]bool, m.cfg.Size)
	for i, r := range ranks {
		here[r] = len(values[i]) > 0
	}
	return slices.DeleteFunc(count(m.cfg.Size), func(r int) bool { return here[r] }), nil
}

func (m *meeting) close() {
	if m.listener != nil {
		m.listener.Close()
	}
	m.client.Close()
}

// joinJob joins the job, through a store if the place has one. An error that is
// a *cause says all.
func joinJob(ctx context.Context, cfg *Config, p *launchenv.Place) (*Comm, error) {
	if cfg.Late {
		return joinLate(ctx, cfg, p)
	}
	h := &home{site: newSite(cfg, p), teller: newTeller(cfg, p), ids: count(cfg.Size), line: worldLine}
	var j *job.Job
	var err error
	if h.site == nil {
		h.cfg = *cfg
		j, err = cfg.enter(ctx, cfg.Rank, cfg.Size, cfg.Addr, nil, []byte(cfg.Secret))
	} else {
		j, err = h.meet(ctx, cfg, p)
	}
	if err != nil {
		return nil, err
	}
	h.job = j
	e, err := cfg.attach(j.World(), nil)
	if err != nil {
		return nil, err
	}
	return newComm(e, h), nil
}

// meet joins the job through a store.
func (h *home) meet(ctx context.Context, cfg *Config, p *launchenv.Place) (*job.Job, error) {
	m, err := meet(ctx, cfg, p)
	if err != nil {
		return nil, err
	}
	j, err := m.join(ctx)
	if err != nil {
		err = m.failed(err)
		m.close()
		return nil, err
	}
	defer m.client.Close()
	if m.now.Line > 1 {
		h.line = fmt.Sprint(worldLine, ".", m.now.Line)
	}
	cfg.Addr = m.now.Addr
	h.cfg = *cfg
	return j, nil
}
