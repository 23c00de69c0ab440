package main

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/jobstore"
	"github.com/tutti-go/tutti/internal/netns"
	"github.com/tutti-go/tutti/store"
)

// serve makes this process the store.
func (j *job) serve(env []string) ([]string, error) {
	var err error
	j.server, err = store.Listen(context.Background(), "127.0.0.1:0", store.Config{
		Secret: []byte(jobSecret), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	return append(env, "TUTTI_STORE="+j.server.Addr().String()), nil
}

// serveFar makes the hosts, and a process on the last host that is the store, and waits until it
// listens. After an error job.end removes what was made.
func (j *job) serveFar(env []string) ([]string, error) {
	cert, key, err := tutti.NewJobCert(time.Hour)
	if err != nil {
		return nil, err
	}
	at := slices.Max(j.hosts) + 1
	if j.net, err = netns.New(int(networkCount.Add(1)), at+1, false); err != nil {
		return nil, err
	}
	env = append(env, "TUTTI_CERT="+string(cert), "TUTTI_KEY="+string(key), fmt.Sprintf("TUTTI_STORE=%s:%d", j.net.Addr(at), farPort))
	if j.keeper, err = j.launch(at, append(env[:len(env):len(env)], stateName+"=store")); err != nil {
		return nil, err
	}
	_, err = j.keeper.await("ready")
	return env, err
}

const farPort = 7474

// arrived waits until a rank has announced in the store that it is in Shrink.
func (j *job) arrived(rank int) error {
	if j.server != nil {
		return announced(j.server.Store(), rank)
	}
	j.keeper.send(fmt.Sprint(rank))
	_, err := j.keeper.await(fmt.Sprint("announced ", rank))
	return err
}

// announced polls the store until the rank has announced that it is in Shrink, for at most
// patience.
func announced(s store.Store, rank int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		said, err := store.Prefix(s, jobstore.Ranks("")).Get(ctx, jobstore.Announced(jobstore.Generation(jobstore.World, 0)))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(said)) {
			if strings.HasPrefix(line, fmt.Sprint(rank, " ")) {
				return nil
			}
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("rank %d has not called Shrink: %w", rank, ctx.Err())
		}
	}
}

// storeProcess is the store. For each rank that it reads from its input it answers when that rank
// has called Shrink. It returns at the end of its input, or with an error if a rank does not call
// Shrink within patience.
func storeProcess(in *bufio.Reader) error {
	s, err := store.Listen(context.Background(), os.Getenv("TUTTI_STORE"), store.Config{
		Secret: []byte(jobSecret), Cert: []byte(os.Getenv("TUTTI_CERT")), Key: []byte(os.Getenv("TUTTI_KEY")),
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Println("ready")
	for {
		var rank int
		if _, err := fmt.Fscanln(in, &rank); err != nil {
			return nil // end of input
		}
		if err := announced(s.Store(), rank); err != nil {
			return err
		}
		fmt.Println("announced", rank)
	}
}
