// Package store is a key-value store for rendezvous: processes that know only
// one address find each other through it.
//
// [Listen] starts a server and [Dial] connects to one. Both speak the protocol
// of PyTorch's TCPStore (2.x), so that PyTorch processes can use a server of
// this package, and Go processes a server of PyTorch's. [NewMemory] is the same
// without a network, for tests. [Prefix] gives a part of a store to one user.
//
// # Two modes
//
// A store is secured unless asked otherwise: before the first request both
// sides prove that they know the job's secret, and off the loopback the
// connection is encrypted by the job's certificate. PyTorch does not speak
// that. [Config.Plain] gives the bare protocol, which has no authentication:
// whoever reaches the port reads and changes everything.
//
// # What a stranger can do
//
// Little: [Limits] bounds connections, keys, values, bytes and waiting
// requests, whoever is slow in the middle of a request is cut off, and every
// refusal is one line in the log. Connections that have not proved who they are
// have limits of their own: by default 256 of them, 16 KiB read from each, and
// 10 s. When there are more, the oldest of the host that has most is closed,
// so that a client gets in while others hold all places. A client whose
// connection was closed for that reason tries again.
package store
