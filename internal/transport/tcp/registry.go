package tcp

import (
	"net"
	"sync"
	"time"
)

// maxClosed is how many closed groups a process remembers, so that later dialers get statusClosed.
const maxClosed = 4096

// A key identifies one rank's side of a group.
type key struct {
	group Group
	rank  int
}

// An incoming is an authenticated connection with its hello.
type incoming struct {
	conn  net.Conn
	hello hello
	timer *time.Timer // ends the parking
}

func (c *incoming) key() key { return key{c.hello.group, c.hello.to} }

// A parkKey identifies a parked connection. A rank that dials again replaces its connection.
type parkKey struct {
	key
	from int
	lane byte
}

func (c *incoming) parkKey() parkKey { return parkKey{c.key(), c.hello.from, c.hello.lane} }

// A registry holds the meshes of a process, the parked connections whose mesh is not made yet, and
// the keys of closed meshes. mu guards all fields but opts.
type registry struct {
	opts        *Options
	mu          sync.Mutex
	meshes      map[key]*Mesh
	parked      map[parkKey]*incoming
	closed      map[key]struct{}
	closedOrder []key // the keys of closed, oldest first
	stopped     bool
}

func (r *registry) setup(opts *Options) {
	r.opts = opts
	r.meshes = make(map[key]*Mesh)
	r.parked = make(map[parkKey]*incoming)
	r.closed = make(map[key]struct{})
}

// stop closes all parked connections. find refuses later ones.
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

// find returns the mesh of a connection. If there is none, it parks the connection, for at most ParkTimeout,
// or returns why not; the caller then refuses it. It runs on the goroutine of the handshake.
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

// expire refuses a parked connection after ParkTimeout. It runs in a timer's goroutine and does
// nothing if the connection is not parked any more.
func (r *registry) expire(c *incoming) {
	r.mu.Lock()
	parked := r.parked[c.parkKey()] == c
	if parked {
		delete(r.parked, c.parkKey())
	}
	r.mu.Unlock()
	if parked {
		_ = c.conn.SetDeadline(time.Now().Add(r.opts.HandshakeTimeout))
		_, _ = c.conn.Write(welcome(statusLate))
		_ = c.conn.Close()
		r.opts.Logger.Warn("connection refused", "remote", c.conn.RemoteAddr().String(),
			"reason", "its group was not made in time", "from", c.hello.from, "to", c.hello.to)
	}
}

// add registers a mesh and returns its parked connections. It reports false if the mesh exists or
// was closed.
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

// remove marks a mesh as closed.
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
