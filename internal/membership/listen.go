package membership

import (
	"context"
	"errors"
	"net"
	"strconv"

	"github.com/tutti-go/tutti/internal/launchenv"
)

// listenNear listens where all processes that can reach the store at an address can
// connect: on the loopback interface if the store is there, otherwise on all interfaces.
func listenNear(ctx context.Context, store string) (addr string, l net.Listener, err error) {
	if launchenv.OnLoopback(store) {
		return listenLoopback(ctx, store)
	}
	// Connecting a UDP socket sends no packet. It finds the interface that leads to the store.
	var d net.Dialer
	route, err := d.DialContext(ctx, "udp", store)
	if err != nil {
		return "", nil, err
	}
	defer route.Close()
	var lc net.ListenConfig
	if l, err = lc.Listen(ctx, "tcp", ":0"); err != nil {
		return "", nil, err
	}
	host, _, _ := net.SplitHostPort(store)
	if ip := route.LocalAddr().(*net.UDPAddr).IP; !ip.IsLoopback() {
		host = ip.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(l.Addr().(*net.TCPAddr).Port)), l, nil
}

func listenLoopback(ctx context.Context, store string) (addr string, l net.Listener, err error) {
	var lc net.ListenConfig
	var errs []error
	for _, addr := range launchenv.Loopbacks(store) {
		l, err := lc.Listen(ctx, "tcp", addr)
		if err == nil {
			return l.Addr().String(), l, nil
		}
		errs = append(errs, err)
	}
	return "", nil, errors.Join(errs...)
}
