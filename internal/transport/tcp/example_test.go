package tcp_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/transport/tcp"
	"github.com/tutti-go/tutti/internal/wait"
)

// Two ranks of one process exchange a frame. In a job each process has one listener and gets the
// other addresses through the control channel.
func Example() {
	var listeners [2]*tcp.Listener
	var peers [][]string
	for i := range listeners {
		l, err := tcp.Listen(tcp.Options{Job: "example", Secret: []byte("of the job"), Listen: "127.0.0.1:0"})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer l.Close()
		listeners[i] = l
		peers = append(peers, l.Addrs())
	}
	said := make(chan string)
	for rank, l := range listeners {
		go func() {
			m, err := l.Mesh(tcp.MeshOptions{Group: tcp.Group{1}, Rank: rank, Peers: peers})
			if err != nil {
				said <- err.Error()
				return
			}
			defer m.Close()
			w := wait.NewWaiter(wait.NewParkingLot(1))
			w.Begin(context.Background(), time.Minute)
			out := &transport.Frame{Peer: 1 - rank, Body: fmt.Appendf(nil, "from %d", rank)}
			in := &transport.Frame{Peer: 1 - rank, Body: make([]byte, len(out.Body))}
			if err := m.Exchange(w, out, in); err != nil {
				said <- err.Error()
				return
			}
			said <- fmt.Sprintf("rank %d got %q", rank, in.Body)
		}()
	}
	fmt.Println(<-said)
	fmt.Println(<-said)
	// Unordered output:
	// rank 0 got "from 1"
	// rank 1 got "from 0"
}
