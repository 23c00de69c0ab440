package tcp

import (
	"net"
	"sync"
	"time"
)

// maxClosed is how many closed groups a process remembers, so that whoever
// still calls for one is told so.
const maxClosed = 4096

// A key names one rank's side of a group.
type key struct {
	group Group
	rank  int
}

// A call is a proven connection and what it is for.
type incoming struct {
	conn  net.Conn
	hello hello
	timer *time.Timer // while parked
}

func (c *incoming) key() key { return key{c.hello.group, c.hello.to} }

// place tells parked calls apart; a rank that calls again replaces its call.
type parkKey struct {
	key
	from int
	lane byte
}

func (c *incoming) parkKey() parkKey { return parkKey{c.key(), c.hello.from, c.hello.lane} }

// A registry knows the meshes of a process, the calls that came before theirs
// was made, and those that are no more.
type registry struct {
	opts        *Options
	mu          sync.Mutex
	meshes      map[key]*Mesh
	parked      map[parkKey]*incoming
	closed      map[key]struct{}
	closedOrder []key // the order of closed
	stopped     bool
}

func (r *registry) setup(opts *Options) {
	r.opts = opts
	r.meshes = make(map[key]*Mesh)
	r.parked = make(map[parkKey]*incoming)
	r.closed = make(map[key]struct{})
}

// stop turns away all parked calls, now and later.
func (r *registry) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	for at, c := range r.parked {
		c.timer.Stop()
		_ = c.conn.Close()
		delete(r.parked, at)
	}
}

// find returns the mesh that a call is for. If there is none it parks the
// call, or returns why not.
func (r *registry) find(c *incoming) (*Mesh, status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.meshes[c.key()]; m != nil {
		return m, statusOK
	}
	if _, ok := r.closed[c.key()]; ok || r.stopped {
		return nil, statusClosed
	}
	at := c.parkKey()
	if old := r.parked[at]; old != nil {
		old.timer.Stop()
		_ = old.conn.Close()
	} else if len(r.parked) >= r.opts.MaxParked {
		return nil, statusFull
	}
	r.parked[at] = c
	c.timer = time.AfterFunc(r.opts.ParkTimeout, func() { r.expire(c) })
	return nil, statusOK
}

// expire ends the wait of a parked call.
func (r *registry) expire(c *incoming) {
	r.mu.Lock()
	waits := r.parked[c.parkKey()] == c
	if waits {
		delete(r.parked, c.parkKey())
	}
	r.mu.Unlock()
	if waits {
		_ = c.conn.SetDeadline(time.Now().Add(r.opts.HandshakeTimeout))
		_, _ = c.conn.Write(welcome(statusLate))
		_ = c.conn.Close()
		r.opts.Logger.Warn("connection refused", "remote", c.conn.RemoteAddr().String(),
			"reason", "its group was not made in time", "from", c.hello.from, "to", c.hello.to)
	}
}

// add makes a mesh known and returns the calls that have waited for it. It
// reports false if the mesh is known already, or was closed.
func (r *registry) add(m *Mesh) ([]*incoming, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.closed[m.key]; ok || r.meshes[m.key] != nil {
		return nil, false
	}
	r.meshes[m.key] = m
	var calls []*incoming
	for at, c := range r.parked {
		if at.key == m.key {
			c.timer.Stop()
			calls = append(calls, c)
			delete(r.parked, at)
		}
	}
	return calls, true
}

// remove makes a mesh known as closed.
func (r *registry) remove(m *Mesh) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.meshes, m.key)
	r.closed[m.key] = struct{}{}
	r.closedOrder = append(r.closedOrder, m.key)
	if len(r.closedOrder) > maxClosed {
		delete(r.closed, r.closedOrder[0])
		r.closedOrder = r.closedOrder[1:]
	}
}
