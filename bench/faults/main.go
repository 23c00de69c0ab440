// Command faults injects faults into small jobs, and measures which errors the
// other ranks get, and when.
//
//	go run ./bench/faults kill --trials 1000 --transport shm,tcp    a random rank is killed at a random moment
//	go run ./bench/faults kill --messages --trials 1000             the same, while four ranks exchange messages
//	go run ./bench/faults stop                                      a rank is stopped, and continued
//	go run ./bench/faults stop --messages                           the same for part of a second, and nothing fails
//	go run ./bench/faults survivors --trials 300                    ranks die, stop and leave; then an event in a group of the others
//	go run ./bench/faults drill                                     a fault in each state of a rank
//	go run ./bench/faults mismatch                                  ranks make different calls, on every engine
//	go run ./bench/faults partition                                 the network between two hosts fails
//	go run ./bench/faults hosts --trials 50                         a host of an elastic job is lost, and replaced
//	go run ./bench/faults verify                                    the cost of Config.Verify: bytes, without, with
//
// Trials that cut the network use network namespaces, which need root.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
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

// command runs one kind of trial, for each transport in turn where the kind has transports. It
// returns the first error. The error of a kind with random trials names the seed that repeats them.
func command(args []string) error {
	if len(args) == 0 {
		return errors.New("kill, survivors, stop, drill, mismatch, partition, hosts or verify?")
	}
	f := flag.NewFlagSet("faults "+args[0], flag.ExitOnError)
	most := 100
	if args[0] == "hosts" {
		most = 10
	}
	trials := f.Int("trials", most, "how often, for each transport")
	transports := f.String("transport", "shm,tcp", "shm, tcp or both")
	seed := f.Uint64("seed", uint64(time.Now().UnixNano()), "of all that is random")
	o := killOptions{out: os.Stderr}
	f.IntVar(&o.mib, "mib", 0, "MiB of memory that each rank holds beside, for kill")
	f.IntVar(&o.most, "ranks", 8, "the most ranks, for kill")
	f.BoolVar(&o.messages, "messages", false, "the ranks only exchange messages, for kill and stop")
	log := f.String("log", "", "file that kill's trials are added to, after those that are in it; its name ends with the transport's")
	f.DurationVar(&o.bound, "for", 0, "time after which kill begins no trial; 0: none")
	d := drillOptions{out: os.Stdout}
	f.DurationVar(&d.hostTimeout, "host-timeout", 3*time.Second, "how long a host may not answer before it is lost, for drill and partition")
	f.StringVar(&d.only, "only", "", "a state, or a state and a fault, for drill; a part of a case's name, for partition and mismatch; all if it is empty")
	m := mismatchOptions{strict: true, out: os.Stdout, progress: os.Stderr}
	engines := f.String("engine", "local,shm,tcp,hier,nccl", "engines, for mismatch")
	elems := f.String("elems", "10,300000", "numbers of elements, for mismatch")
	f.StringVar(&m.library, "nccl", "", "path of libnccl, for mismatch on a GPU; empty: the fake GPU")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "partition":
		return partitionAll(partitionOptions{hostTimeout: d.hostTimeout, only: d.only, strict: true, out: d.out})
	case "hosts":
		return hostsAll(hostsOptions{trials: *trials, seed: *seed, out: os.Stdout, log: os.Stderr})
	case "mismatch":
		m.engines, m.only = strings.Split(*engines, ","), d.only
		for text := range strings.SplitSeq(*elems, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 {
				return fmt.Errorf("%q is not a number of elements", text)
			}
			m.elems = append(m.elems, n)
		}
		return mismatch(m)
	}
	for transport := range strings.SplitSeq(*transports, ",") {
		if transport != "shm" && transport != "tcp" {
			return fmt.Errorf("the transport %q is neither shm nor tcp", transport)
		}
		var err error
		switch args[0] {
		case "kill":
			var s *killResults
			o.trials, o.seed = *trials, *seed
			if o.messages {
				o.limit = time.Second
			}
			if *log != "" {
				o.log = *log + "." + transport
			}
			if s, err = kill(transport, o); s != nil {
				fmt.Println(s)
			}
		case "survivors":
			var s *survivorsResults
			if s, err = runSurvivors(transport, survivorsOptions{trials: *trials, seed: *seed, limit: time.Second, out: os.Stderr}); s != nil {
				fmt.Println(s)
			}
		case "stop":
			if o.messages {
				err = pauseAll(*trials, transport, *seed, os.Stdout)
			} else {
				err = stopAll(*trials, transport, *seed, os.Stdout)
			}
		case "drill":
			err = drill(transport, d)
		case "verify":
			err = verifyCost(transport, os.Stdout)
		default:
			err = fmt.Errorf("there is no %q: kill, survivors, stop, drill, mismatch, partition, hosts or verify", args[0])
		}
		if err != nil {
			return fmt.Errorf("%s, seed %d: %w", transport, *seed, err)
		}
	}
	return nil
}
