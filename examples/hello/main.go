// Hello is one AllReduce: every rank contributes its number and gets the sum.
//
//	go run ./cmd/tutti run -n 4 -- go run ./examples/hello
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/tutti-go/tutti"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := hello(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func hello(ctx context.Context) error {
	c, err := tutti.Join(ctx, tutti.Config{})
	if err != nil {
		return err
	}
	defer c.Close()
	sum := []int{c.Rank()}
	if err := c.AllReduce(ctx, tutti.Of(sum), tutti.Sum); err != nil {
		return err
	}
	fmt.Printf("hello from rank %d of %d: the sum of all ranks is %d\n", c.Rank(), c.Size(), sum[0])
	return nil
}
