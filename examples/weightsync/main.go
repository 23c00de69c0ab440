// Weightsync is an inference server in Go that receives its weights from a PyTorch
// trainer through NCCL, from GPU to GPU. The server contains no Python. README.md
// says how to run it.
//
//	go run ./examples/weightsync [-http 127.0.0.1:8080] [-store 127.0.0.1:29500] [-once]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/torch"
)

func main() {
	addr := flag.String("http", "127.0.0.1:8080", "where the page is served")
	stores := flag.String("store", "127.0.0.1:29500", "the trainer's store; several, separated by commas, are joined one after the other")
	once := flag.Bool("once", false, "end when the weights have come, and serve nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *addr, strings.Split(*stores, ","), *once); err != nil {
		fmt.Fprintln(os.Stderr, "weightsync:", err)
		os.Exit(1)
	}
}

// run receives the weights from each store in turn, and then serves the page until ctx ends or the
// HTTP server fails. A failed transfer or a wrong digest ends it with an error. The HTTP server
// runs in goroutines of its own; server.mu protects the model.
func run(ctx context.Context, addr string, stores []string, once bool) error {
	s := new(server)
	defer s.close()
	failed := make(chan error, 1)
	if !once {
		h := &http.Server{Addr: addr, Handler: s, ReadHeaderTimeout: 10 * time.Second}
		go func() { failed <- h.ListenAndServe() }()
		defer h.Close()
		fmt.Printf("http://%s shows the weights\n", addr)
	}
	for _, store := range stores {
		// The trainer is rank 0 and hosts the store.
		m, err := receive(ctx, torch.Config{Rank: 1, Size: 2, Addr: store})
		if err != nil {
			return err
		}
		fmt.Println(m)
		s.show(m)
		if err := m.wrong(); err != nil {
			return err
		}
	}
	if once {
		return nil
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// errDigest says that a tensor differs from the one that the trainer sent.
var errDigest = errors.New("a digest is wrong")
