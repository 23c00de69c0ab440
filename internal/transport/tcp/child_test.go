package tcp

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/internal/proctest"
)

// childEnv makes the test binary a rank of a test in its parent. It names the role.
const childEnv = "TUTTI_TCP_TEST_CHILD"

// roles are the functions of child processes, whose exit status is the result.
var roles = map[string]func(m *Mesh) error{
	"ring":  childRing,
	"bench": childBench,
	"hold":  childHold,
}

func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		if err := beChild(role); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A job is sent to a child on its standard input, after the child has printed its addresses.
type job struct {
	Group Group
	Rank  int
	Peers [][]string
}

// beChild is the main function of a child: it prints its addresses, reads its job from standard input, makes
// the mesh, and plays the role. It returns the role's error.
func beChild(role string) error {
	l, err := Listen(testOptions())
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Println(strings.Join(l.Addrs(), " "))
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	var j job
	if err := json.Unmarshal(line, &j); err != nil {
		return err
	}
	m, err := l.Mesh(MeshOptions{Group: j.Group, Rank: j.Rank, Peers: j.Peers})
	if err != nil {
		return err
	}
	defer m.Close()
	return roles[role](m)
}

// A child is a rank in a process of its own.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startChildren makes a group of this process, rank 0, and n-1 children that play role. It closes its own
// mesh at the end of the test; the caller waits for or kills the children.
func startChildren(tb testing.TB, n int, role string) (*Mesh, []*child) {
	tb.Helper()
	self := proctest.Self(tb)
	l, err := Listen(testOptions())
	if err != nil {
		tb.Fatal(err)
	}
	j := job{Group: newGroup(), Peers: [][]string{l.Addrs()}}
	var children []*child
	for range n - 1 {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), childEnv+"="+role)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			tb.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			tb.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			tb.Fatal(err)
		}
		c := &child{cmd, in, bufio.NewReader(out)}
		children = append(children, c)
		j.Peers = append(j.Peers, strings.Fields(c.line(tb)))
	}
	for i, c := range children {
		j.Rank = i + 1
		text, err := json.Marshal(j)
		if err != nil {
			tb.Fatal(err)
		}
		if _, err := c.in.Write(append(text, '\n')); err != nil {
			tb.Fatal(err)
		}
	}
	m, err := l.Mesh(MeshOptions{Group: j.Group, Peers: j.Peers})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = m.Close()
		_ = l.Close()
	})
	return m, children
}

// line reads the next line of a child's output.
func (c *child) line(tb testing.TB) string {
	tb.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		tb.Fatal("a child said nothing: ", err)
	}
	return line
}

// wait waits until a child exits successfully.
func (c *child) wait(tb testing.TB) {
	tb.Helper()
	if err := c.cmd.Wait(); err != nil {
		tb.Error("a child failed: ", err)
	}
}
