package tutti_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/internal/netns"
	"github.com/tutti-go/tutti/internal/proctest"
)

// TestJoinEncryptsHosts has processes on two hosts join with only a secret, and captures their traffic. A
// marker is visible in it only if encryption is off. A process with another secret is refused, with an error
// on both sides, and the job continues without it.
func TestJoinEncryptsHosts(t *testing.T) {
	self := proctest.Self(t)
	n, err := netns.New(1, 2, false)
	if errors.Is(err, netns.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	const secret = "TUTTI_SECRET=what the ranks of this job know"
	start := func(t *testing.T, rank int, env ...string) (*exec.Cmd, *proctest.Output) {
		cmd := n.Command(t.Context(), rank, self)
		cmd.Env = append(append(os.Environ(), "TUTTI_TEST_BODY=word", "TUTTI_TEST_SIZE=2", "TUTTI_TEST_ADDR="+n.Addr(0)+":7474",
			fmt.Sprint("TUTTI_TEST_RANK=", rank)), env...)
		out := new(proctest.Output)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, out
	}
	for _, plain := range []string{"", "1"} {
		t.Run("plain="+plain, func(t *testing.T) {
			tap, err := n.Tap()
			if errors.Is(err, netns.ErrUnavailable) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer tap.Close()
			mode := "TUTTI_NO_ENCRYPTION=" + plain
			first, said := start(t, 0, secret, mode)
			if plain == "" {
				stranger, why := start(t, 1, secret+" not", mode)
				if err := stranger.Wait(); err == nil || !strings.Contains(why.String(), "does not have this rank's certificate") {
					t.Errorf("one with another secret: %v: %s", err, why)
				}
				said.Await(t, "does not accept this job's certificate", 1)
			}
			second, also := start(t, 1, secret, mode)
			if err := errors.Join(first.Wait(), second.Wait()); err != nil {
				t.Fatalf("%v\n%s\n%s", err, said, also)
			}
			seen, err := tap.Read()
			if err != nil {
				t.Fatal(err)
			}
			for what, c := range map[string]struct {
				text string
				want bool
			}{
				"the control channel's first word": {`"k":"challenge"`, true},
				"what follows on it":               {`"k":"put"`, plain != ""},
				"data":                             {marker, plain != ""},
			} {
				if got := bytes.Contains(seen, []byte(c.text)); got != c.want {
					t.Errorf("%s could be read: %v, want %v", what, got, c.want)
				}
			}
		})
	}
}
