// Package store is a key-value store for rendezvous: the processes of a job, which
// know only one address, exchange their own addresses through it.
//
// [Listen] starts a server and [Dial] connects to it. Both speak the protocol of
// PyTorch's TCPStore (2.x): PyTorch processes can use a server of this package, and
// Go processes can use PyTorch's server. [NewMemory] is a store without a network,
// for tests. [Prefix] confines a user of a store to the keys with a prefix.
//
// # Secured and plain
//
// By default a store is secured. Before the first request both sides prove that they
// know the job's secret, and unless the address is on the loopback, a certificate that
// is derived from the secret encrypts the connection. PyTorch does not support this.
// [Config.Plain] selects PyTorch's protocol as it is, which has no authentication:
// every process that reaches the port can read and change everything.
//
// # The store of a job
//
// Any program can serve the store that the ranks of a job need for Shrink, Grow and
// Agree, in one call:
//
//	server, err := store.Listen(ctx, "host0:29400", store.Config{Secret: secret})
//
// Ranks with TUTTI_STORE=host0:29400 and that secret in TUTTI_SECRET use it. tutti run
// serves one by itself.
//
// # Hostile clients
//
// [Limits] bounds connections, keys, values, bytes and waiting requests. A client
// that takes longer than [Limits.RequestTime] to send a request is disconnected. The server
// logs each refused connection in one line.
//
// Connections that have not authenticated yet have limits of their own: by default
// 256 connections, 16 KiB read from each, and 10 s. When there are more, the server
// closes the oldest connection of the host that has the most of them, once it is
// 250 ms old. A flood from one host therefore does not keep other hosts out. A
// client whose connection was closed for that reason tries again.
package store
