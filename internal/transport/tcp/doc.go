// Package tcp carries frames and messages between processes over TCP.
//
// A process has one [Listener]. It publishes the addresses of the process, authenticates incoming
// connections and passes each to its Mesh. A Mesh has up to two connections per peer, one for
// frames and one for messages. The side that first needs a connection makes it.
//
// Go's network poller carries the handshakes only. After the handshake a connection is a
// non-blocking descriptor. The goroutine that waits for data writes and reads itself: it first
// polls the sockets, then sleeps in poll(2). There is no goroutine per connection, and no copy but
// the kernel's.
//
// Both ends of a connection prove that they know the job's secret before either trusts any other
// field. With TLS the data is encrypted. Without TLS it is as safe as the network.
package tcp

import _ "github.com/tutti-go/tutti/internal/platform" // checks the platform
