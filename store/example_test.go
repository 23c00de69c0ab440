package store_test

import (
	"context"
	"fmt"

	"github.com/tutti-go/tutti/store"
)

// A server, and two processes that exchange an address through it.
func Example() {
	ctx := context.Background()
	config := store.Config{Secret: []byte("known to the job alone")}
	server, err := store.Listen(ctx, "127.0.0.1:0", config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()

	go func() { // in another process
		c, err := store.Dial(ctx, server.Addr().String(), config)
		if err != nil {
			return
		}
		defer c.Close()
		_ = c.Set(ctx, "address of rank 1", []byte("192.0.2.7:4000"))
	}()

	c, err := store.Dial(ctx, server.Addr().String(), config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	addr, err := c.Get(ctx, "address of rank 1") // waits until it is set
	fmt.Println(string(addr), err)
	// Output: 192.0.2.7:4000 <nil>
}
