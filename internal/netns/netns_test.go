package netns

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/proctest"
)

// TestMain runs talk if the test has started this binary on a host.
func TestMain(m *testing.M) {
	if at := os.Getenv("NETNS_TEST_AT"); at != "" {
		if err := talk(at); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	port = ":7474"
	size = 1000 // bytes of a datagram: no other packet in these networks is as large
)

// talk sends a datagram to each address read from standard input, and prints the senders of
// received datagrams.
func talk(at string) error {
	c, err := net.ListenPacket("udp", at+port)
	if err != nil {
		return err
	}
	fmt.Println("here")
	go func() {
		for buf := make([]byte, 2*size); ; {
			n, _, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			fmt.Println("heard of", strings.TrimRight(string(buf[:n]), " "))
		}
	}()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		to, err := net.ResolveUDPAddr("udp", in.Text()+port)
		if err == nil {
			_, err = c.WriteTo(fmt.Appendf(nil, "%*s", -size, at), to)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// setNeighbours enters permanent neighbour entries on all hosts. Otherwise hosts would send ARP
// requests again after some seconds, and a deaf host could not be distinguished.
func setNeighbours(t *testing.T, n *Network) {
	t.Helper()
	for h, host := range n.hosts {
		out, err := exec.Command("ip", "-n", host, "-j", "link", "show", "eth0").Output()
		var links []struct{ Address string }
		if err != nil || json.Unmarshal(out, &links) != nil || len(links) != 1 {
			t.Fatalf("host %d has no address: %v: %s", h, err, out)
		}
		for other, name := range n.hosts {
			if other == h {
				continue
			}
			err := ip("-n", name, "neigh", "replace", n.Addr(h), "lladdr", links[0].Address, "dev", "eth0", "nud", "permanent")
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestNetwork starts this binary on three hosts as talk, and checks which datagrams arrive before
// and after DropInbound, Isolate, Disconnect and Reconnect. A process ends when the test closes its
// standard input. The test is skipped where namespaces are not available.
func TestNetwork(t *testing.T) {
	self := proctest.Self(t)
	n, err := New(1, 3, false)
	if errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	var outs [3]proctest.Output
	var ins [3]io.WriteCloser
	for h := range outs {
		cmd := n.Command(t.Context(), h, self)
		cmd.Env = append(os.Environ(), "NETNS_TEST_AT="+n.Addr(h))
		cmd.Stdout = &outs[h]
		if ins[h], err = cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			ins[h].Close()
			if err := cmd.Wait(); err != nil {
				t.Errorf("host %d: %v: %s", h, err, &outs[h])
			}
		}()
	}
	for h := range outs {
		outs[h].Await(t, "here", 1)
	}
	heard := make(map[[2]int]int)
	say := func(from, to int) {
		t.Helper()
		if _, err := fmt.Fprintln(ins[from], n.Addr(to)); err != nil {
			t.Fatal(err)
		}
	}
	hears := func(from, to int) {
		t.Helper()
		say(from, to)
		heard[[2]int{from, to}]++
		outs[to].Await(t, "heard of "+n.Addr(from)+"\n", heard[[2]int{from, to}])
	}
	traffic := func(host int) (sent, received uint64) {
		t.Helper()
		sent, received, err := n.Traffic(host)
		if err != nil {
			t.Fatal(err)
		}
		return sent, received
	}
	// hearsNot waits until the switch has received the datagram, and checks that the switch has not
	// forwarded it.
	hearsNot := func(from, to int) {
		t.Helper()
		before, _ := traffic(from)
		_, reached := traffic(to)
		say(from, to)
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if sent, _ := traffic(from); sent >= before+size {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("host %d has sent nothing", from)
			}
		}
		if _, now := traffic(to); now >= reached+size {
			t.Errorf("host %d has heard host %d: %d bytes", to, from, now-reached)
		}
	}
	hears(0, 1)
	hears(1, 0)
	hears(2, 1)
	hears(2, 0)
	setNeighbours(t, n)
	if err := n.DropInbound(1); err != nil {
		t.Fatal(err)
	}
	hears(1, 0)
	hears(1, 2)
	hearsNot(0, 1)
	hears(1, 0) // packets from host 1 do not teach the switch its port
	hearsNot(2, 1)
	hears(0, 2)
	if err := n.Isolate(0, 2); err != nil {
		t.Fatal(err)
	}
	hearsNot(0, 2)
	hearsNot(2, 0)
	hears(1, 0)
	if err := n.Disconnect(0); err != nil {
		t.Fatal(err)
	}
	hearsNot(1, 0)
	if err := n.Reconnect(0); err != nil {
		t.Fatal(err)
	}
	hears(1, 0)
}
