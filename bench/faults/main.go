// Command faults does to the ranks of small jobs what happens to them in life,
// and looks at what the others are told, and when.
//
//	go run ./bench/faults kill --trials 1000 --transport shm,tcp    a random rank is killed at a random moment
//	go run ./bench/faults stop                                      a rank is stopped, and continued
//	go run ./bench/faults drill                                     a fault in each state of a rank
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	if os.Getenv(stateName) != "" {
		if err := rankProcess(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	if len(args) == 0 {
		return errors.New("kill, stop or drill?")
	}
	f := flag.NewFlagSet("faults "+args[0], flag.ExitOnError)
	trials := f.Int("trials", 100, "how often, for each transport")
	transports := f.String("transport", "shm,tcp", "shm, tcp or both")
	seed := f.Uint64("seed", uint64(time.Now().UnixNano()), "of all that is random")
	ballast := f.Int("mib", 0, "MiB of memory that each rank holds beside, for kill")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	for transport := range strings.SplitSeq(*transports, ",") {
		if transport != "shm" && transport != "tcp" {
			return fmt.Errorf("the transport %q is neither shm nor tcp", transport)
		}
		var err error
		switch args[0] {
		case "kill":
			var s *killed
			if s, err = kill(*trials, transport, *seed, *ballast); s != nil {
				fmt.Println(s)
			}
		case "stop":
			err = stopAll(*trials, transport, *seed, os.Stdout)
		case "drill":
			err = drill(transport, os.Stdout)
		default:
			err = fmt.Errorf("there is no %q: kill, stop or drill", args[0])
		}
		if err != nil {
			return fmt.Errorf("%s, seed %d: %w", transport, *seed, err)
		}
	}
	return nil
}
