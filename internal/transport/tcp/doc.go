// Package tcp carries frames and messages between processes over TCP.
//
// A process has one [Listener]. It says where the process can be reached,
// checks whoever calls, and hands the connections to the meshes they are for.
// A mesh has two connections to each peer it talks to, one for frames and one
// for messages, made on first use by whichever side needs it first.
//
// Go's network poller only carries the handshakes. After that a connection is
// a bare non-blocking descriptor: the goroutine that waits for data tries to
// write and to read by itself, for a while without pause, then asleep in
// poll(2). There is no goroutine per connection and no copy beyond the
// kernel's own.
//
// Both ends of a connection prove that they know the job's secret before
// anything else is believed. With TLS the data is also encrypted; without, it
// is as safe as the network.
package tcp

import _ "github.com/tutti-go/tutti/internal/platform" // needs what this package needs
