package cliflag_test

import (
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/internal/cliflag"
)

func flags() *flag.FlagSet {
	f := flag.NewFlagSet("tutti sing", flag.ContinueOnError)
	f.Int("n", 4, "`voices` that sing")
	f.Bool("loud", false, "so that all hear it, "+strings.Repeat("near and far, ", 8)+"and everywhere")
	f.String("song", "", "what to sing")
	return f
}

func Example() {
	f := flags()
	if err := cliflag.Parse(f, []string{"-h"}); errors.Is(err, flag.ErrHelp) {
		_ = cliflag.Print(os.Stdout, "Usage: tutti sing [flags]\n\n", f)
	}
	// Output:
	// Usage: tutti sing [flags]
	//
	//   --loud
	//         so that all hear it, near and far, near and far, near and far, near and
	//         far, near and far, near and far, near and far, near and far, and
	//         everywhere
	//   -n voices
	//         voices that sing (default 4)
	//   --song string
	//         what to sing
}

func TestParse(t *testing.T) {
	for args, want := range map[string]string{
		"-n 2 --song x": "",
		"--nosuch":      "there is no flag --nosuch; tutti sing -h lists them",
		"-x":            "there is no flag -x; tutti sing -h lists them",
		"-n x":          `invalid value "x" for flag -n: parse error; see tutti sing -h`,
		"--song":        "flag needs an argument: -song; see tutti sing -h",
	} {
		got := ""
		if err := cliflag.Parse(flags(), strings.Fields(args)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q", args, got)
		}
	}
}
