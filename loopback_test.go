package tutti_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/netns"
	"github.com/tutti-go/tutti/internal/proctest"
	"github.com/tutti-go/tutti/launch"
)

// idleBody joins as the environment says, exchanges one message with the other rank, and waits in Barrier
// until the test closes rank 0's standard input. Rank 1 waits in Barrier meanwhile.
func idleBody() error {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	cfg := tutti.Config{NoSharedMemory: os.Getenv("TUTTI_TEST_NETWORK") != "", Timeout: deadline}
	if addr := os.Getenv("TUTTI_TEST_ADDR"); addr != "" {
		cfg.Rank, cfg.Size, cfg.Addr = envNumber("TUTTI_TEST_RANK"), envNumber("TUTTI_TEST_SIZE"), addr
	}
	c, err := tutti.Join(ctx, cfg)
	if err != nil {
		return err
	}
	in, out := make([]int32, 1), []int32{7}
	peer := 1 - c.Rank()
	if err := c.SendRecv(ctx, peer, tutti.Of(out), peer, tutti.Of(in), 0); err != nil {
		return err
	}
	fmt.Println("rank", c.Rank(), "is there")
	if c.Rank() == 0 {
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	return errors.Join(c.Barrier(ctx), c.Close())
}

// launchBody runs two ranks of idleBody as tutti run does.
func launchBody() error {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	_, err = launch.Run(ctx, launch.Config{
		Ranks: 2, Torch: true, Stdin: os.Stdin, Command: []string{self},
		Env: append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "TUTTI_TEST_BODY=") }), "TUTTI_TEST_BODY=stay"),
	})
	return err
}

// attackBody connects to listeners with everything that the source code reveals:
// the protocol, and the names and keys of a job of an earlier version.
func attackBody() error {
	var all sync.WaitGroup
	for _, at := range strings.Fields(os.Getenv("TUTTI_TEST_TARGETS")) {
		all.Go(func() {
			got := attackData(at)
			fmt.Println(at, "as data:", got)
			if !strings.Contains(got, "status") { // a data listener waits for its peer to speak first
				fmt.Println(at, "as control:", attackControl(at))
			}
		})
	}
	all.Wait()
	return nil
}

// attackTime bounds how long the attacker waits for an answer, because some
// listeners wait for the peer to speak first.
const attackTime = 3 * time.Second

// attackData connects to a data listener as rank 0 of a job without a secret, with the protocol's constants
// of commit 28e183b. It returns what happened as text; "LET IN" means that the listener accepted it.
// attackTime bounds the attempt.
func attackData(at string) string {
	c, err := net.Dial("tcp", at)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(attackTime))
	h := make([]byte, 96)
	copy(h, "tuttitcp")
	binary.LittleEndian.PutUint16(h[8:], 1)
	h[10] = 1 // messages
	binary.LittleEndian.PutUint32(h[16:], 1)
	binary.LittleEndian.PutUint32(h[20:], 2)
	job, group := sha256.Sum256([]byte("tutti")), sha256.Sum256([]byte("world"))
	copy(h[24:], job[:16])
	copy(h[40:], group[:16])
	if _, err := c.Write(h); err != nil {
		return err.Error()
	}
	b := make([]byte, 80)
	if _, err := io.ReadFull(c, b); err != nil {
		return "no answer"
	}
	if string(b[:8]) != "tuttitcp" {
		return "not a data listener"
	}
	if s := binary.LittleEndian.Uint16(b[10:]); s != 0 {
		return fmt.Sprint("refused with status ", s)
	}
	m := hmac.New(sha256.New, []byte("tutti "))
	m.Write([]byte("tutti tcp caller:"))
	m.Write(h)
	m.Write(b[16:48])
	_, _ = c.Write(m.Sum(nil))
	if _, err := io.ReadFull(c, b[:16]); err != nil || binary.LittleEndian.Uint16(b[8:]) != 0 {
		return "refused"
	}
	return "LET IN"
}

// attackControl connects to rank 0's control listener as rank 1, with the proof of an empty secret. It
// returns what happened as text; "LET IN" means that it was accepted. attackTime bounds the attempt.
func attackControl(at string) string {
	c, err := net.Dial("tcp", at)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(attackTime))
	var f struct {
		Kind   string `json:"k"`
		Nonce  []byte `json:"nonce"`
		Build  any    `json:"build,omitempty"`
		Reason string `json:"reason"`
	}
	receive := func() error {
		var head [4]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return err
		}
		body := make([]byte, min(binary.BigEndian.Uint32(head[:]), 1<<20))
		if _, err := io.ReadFull(c, body); err != nil {
			return err
		}
		return json.Unmarshal(body, &f)
	}
	if err := receive(); err != nil || f.Kind != "challenge" {
		return "not a control listener"
	}
	nonce := make([]byte, 32)
	m := hmac.New(sha256.New, nil)
	m.Write([]byte("tutti control 1 rank"))
	m.Write(f.Nonce)
	m.Write(nonce)
	m.Write(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, 1), 2))
	build, _ := json.Marshal(f.Build) // the version of rank 0
	text := fmt.Sprintf(`{"k":"hello","version":1,"build":%s,"rank":1,"size":2,"nonce":%q,"proof":%q,"blob":"e30="}`, build,
		base64.StdEncoding.EncodeToString(nonce), base64.StdEncoding.EncodeToString(m.Sum(nil)))
	_, _ = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	if err := receive(); err != nil {
		return "no answer"
	}
	if f.Kind != "refused" {
		return "LET IN"
	}
	return "refused: " + f.Reason
}

// listeners returns the addresses of all TCP and UDP listeners on a host of a network, from /proc/net.
func listeners(t *testing.T, n *netns.Network, host int) (list []netip.AddrPort) {
	t.Helper()
	for _, file := range []string{"tcp", "tcp6", "udp", "udp6"} {
		out, err := n.Command(t.Context(), host, "cat", "/proc/net/"+file).Output()
		if err != nil {
			t.Fatal(err)
		}
		const listen, unconnected = "0A", "07"
		lines := bufio.NewScanner(bytes.NewReader(out))
		for lines.Scan() {
			f := strings.Fields(lines.Text())
			if len(f) < 4 || f[3] != listen && f[3] != unconnected {
				continue
			}
			ip, port, _ := strings.Cut(f[1], ":")
			raw, err := hex.DecodeString(ip)
			number, e := strconv.ParseUint(port, 16, 16)
			if err != nil || e != nil {
				t.Fatalf("%s: %s", file, lines.Text())
			}
			for word := range slices.Chunk(raw, 4) { // each word is in the host's byte order
				slices.Reverse(word)
			}
			at, _ := netip.AddrFromSlice(raw)
			list = append(list, netip.AddrPortFrom(at.Unmap(), uint16(number)))
		}
	}
	return list
}

// TestLoopbackListeners runs jobs of two processes on one host without a secret. None of their listeners may
// be reachable from another host. Each refuses a peer with the names and keys of an earlier version. The job
// then ends without an error.
func TestLoopbackListeners(t *testing.T) {
	self := proctest.Self(t)
	n, err := netns.New(2, 2, false)
	if errors.Is(err, netns.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for name, env := range map[string][]string{
		"Config.Addr":       {"TUTTI_TEST_ADDR=127.0.0.1:7474"},
		"localhost":         {"TUTTI_TEST_ADDR=localhost:7474"},
		"IPv6":              {"TUTTI_TEST_ADDR=[::1]:7474"},
		"network":           {"TUTTI_TEST_ADDR=127.0.0.1:7474", "TUTTI_TEST_NETWORK=1"},
		"an interface":      {"TUTTI_TEST_ADDR=127.0.0.1:7474", "TUTTI_TEST_NETWORK=1", "TUTTI_SOCKET_IFNAME=eth0"},
		"torchrun":          {"RANK", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"},
		"torchrun, by name": {"RANK", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=" + n.Addr(0), "MASTER_PORT=29500"},
		"Slurm": {
			"SLURM_PROCID", "SLURM_NTASKS=2", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_ID=0", "SLURM_JOB_ID=7",
			"SLURM_JOB_NODELIST=n1", "SLURM_JOB_NUM_NODES=1",
		},
		"tutti run": nil,
	} {
		t.Run(name, func(t *testing.T) {
			out := new(proctest.Output)
			body, processes := "stay", 2
			if env == nil {
				body, processes = "launch", 1
			}
			var cmds []*exec.Cmd
			var in io.WriteCloser
			for r := range processes {
				cmd := n.Command(t.Context(), 0, self)
				cmd.Env = append(os.Environ(), "TUTTI_TEST_BODY="+body, "TUTTI_TEST_SIZE=2", fmt.Sprint("TUTTI_TEST_RANK=", r))
				for _, e := range env {
					if !strings.Contains(e, "=") { // the name of the variable for the rank
						e = fmt.Sprint(e, "=", r)
					}
					cmd.Env = append(cmd.Env, e)
				}
				cmd.Stdout, cmd.Stderr = out, out
				if r == 0 {
					if in, err = cmd.StdinPipe(); err != nil {
						t.Fatal(err)
					}
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				cmds = append(cmds, cmd)
			}
			out.Await(t, "is there", 2)
			var near, far []string
			for _, at := range listeners(t, n, 0) {
				if !at.Addr().IsLoopback() {
					t.Errorf("somebody listens on %v", at)
				}
				near = append(near, at.String())
				far = append(far, netip.AddrPortFrom(netip.MustParseAddr(n.Addr(0)), at.Port()).String())
			}
			attack(t, n, self, near, far)
			in.Close()
			for _, cmd := range cmds {
				if err := cmd.Wait(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			}
		})
	}
}

// attack attacks the listeners of two ranks from their own host at near, and from another host at far, by
// processes of attackBody. No attack may succeed; from the other host no listener may be reachable.
func attack(t *testing.T, n *netns.Network, self string, near, far []string) {
	t.Helper()
	from := func(host int, targets []string) string {
		cmd := n.Command(t.Context(), host, self)
		cmd.Env = append(os.Environ(), "TUTTI_TEST_BODY=attack", "TUTTI_TEST_RANK=0", "TUTTI_TEST_TARGETS="+strings.Join(targets, " "))
		said, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		return string(said)
	}
	said := from(0, near)
	if strings.Contains(said, "LET IN") {
		t.Errorf("somebody was let in:\n%s", said)
	}
	// Each rank has a data listener, which belongs to another job. Rank 0 already
	// has its rank 1, or requires a secret.
	if strings.Count(said, "as data: refused with status 2\n") != 2 || strings.Count(said, "as control: refused: ") != 1 {
		t.Errorf("not all listeners were attacked:\n%s", said)
	}
	said = from(1, far)
	if strings.Count(said, "connection refused\n") != 2*len(far) {
		t.Errorf("another host can reach a listener:\n%s", said)
	}
}

// TestLoopbackPassedOn forwards the loopback address of a job to another host,
// through a tunnel. The rank there is refused with an error on both sides.
func TestLoopbackPassedOn(t *testing.T) {
	self := proctest.Self(t)
	n, err := netns.New(3, 2, false)
	if errors.Is(err, netns.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	socket := t.TempDir() + "/tunnel"
	// One end of the tunnel on each host; both hosts share the file system.
	start := func(host int, out io.Writer, env ...string) *exec.Cmd {
		cmd := n.Command(t.Context(), host, self)
		cmd.Env = append(append(os.Environ(), "TUTTI_TEST_SIZE=2", "TUTTI_TEST_ADDR=127.0.0.1:7474", "TUTTI_TEST_TUNNEL="+socket), env...)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	var ends [2]proctest.Output
	for host := range ends {
		end := start(host, &ends[host], "TUTTI_TEST_BODY=tunnel", fmt.Sprint("TUTTI_TEST_RANK=", host))
		ends[host].Await(t, "ready", 1)
		defer func() {
			_ = end.Process.Kill()
			_ = end.Wait()
		}()
	}
	for _, secret := range []string{"", "TUTTI_SECRET=what the ranks of this job know"} {
		var outs [2]proctest.Output
		var cmds [2]*exec.Cmd
		for r := range cmds {
			cmds[r] = start(r, &outs[r], "TUTTI_TEST_BODY=stay", fmt.Sprint("TUTTI_TEST_RANK=", r), secret)
			// A tunnel without a listener ends the connection at once, which a rank
			// treats as a refusal.
			end := time.Now().Add(deadline)
			for r == 0 && !slices.ContainsFunc(listeners(t, n, 0), func(a netip.AddrPort) bool { return a.Port() == 7474 }) {
				if time.Now().After(end) {
					t.Fatalf("rank 0 does not listen: %s", &outs[0])
				}
				time.Sleep(time.Millisecond)
			}
		}
		for r, cmd := range cmds {
			err := cmd.Wait()
			if said := outs[r].String(); err == nil || !strings.Contains(said, "ranks disagree: rank 1 is on another host, or in another network namespace, than rank 0") {
				t.Errorf("rank %d: %v: %s", r, err, said)
			}
		}
	}
}

// tunnelBody is one end of a tunnel: on the host of rank 1 it accepts connections to rank 0's address, on the
// host of rank 0 it makes them. Two goroutines copy each connection until one side closes it. The test kills
// the process.
func tunnelBody() error {
	path, addr := os.Getenv("TUTTI_TEST_TUNNEL"), os.Getenv("TUTTI_TEST_ADDR")
	listen, dial := [2]string{"unix", path}, [2]string{"tcp", addr}
	if envNumber("TUTTI_TEST_RANK") == 1 {
		listen, dial = dial, listen
	}
	l, err := net.Listen(listen[0], listen[1])
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		from, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer from.Close()
			to, err := net.Dial(dial[0], dial[1])
			if err != nil {
				return
			}
			defer to.Close()
			go func() {
				_, _ = io.Copy(to, from)
				_ = to.Close()
			}()
			_, _ = io.Copy(from, to)
		}()
	}
}
