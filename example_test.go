package tutti_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tutti-go/tutti"
)

// ExampleRunLocal runs four ranks, as goroutines, that average their values.
func ExampleRunLocal() {
	err := tutti.RunLocal(context.Background(), 4, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		grad := []float32{float32(c.Rank()), 1}
		if err := c.AllReduce(ctx, tutti.Of(grad), tutti.Avg); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(grad)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: [1.5 1]
}

// ExampleJoin joins the other processes of the job. No launcher has started this
// process, so it is the only rank.
func ExampleJoin() {
	ctx := context.Background()
	comm, err := tutti.Join(ctx, tutti.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer comm.Close()
	steps, err := tutti.AllReduceValue(ctx, comm, 10, tutti.Min)
	fmt.Printf("rank %d of %d: %d %v\n", comm.Rank(), comm.Size(), steps, err)
	// Output: rank 0 of 1: 10 <nil>
}

// ExampleAlloc allocates memory that all ranks of the host can access, so
// operations need no extra copies.
func ExampleAlloc() {
	err := tutti.RunLocal(context.Background(), 2, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		mem, err := tutti.Alloc[float64](ctx, c, 3)
		if err != nil {
			return err
		}
		defer mem.Free() //nolint:errcheck // the example ends here
		x := mem.Slice()
		x[c.Rank()] = 1
		if err := c.AllReduce(ctx, mem.Buffer(), tutti.Sum); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(x)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: [1 1 0]
}

// ExampleComm_Stats prints a counter, and all counters in the format of Prometheus.
func ExampleComm_Stats() {
	err := tutti.RunLocal(context.Background(), 2, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		for range 3 {
			if err := c.AllReduce(ctx, tutti.Of([]int32{1, 2}), tutti.Sum); err != nil {
				return err
			}
		}
		if c.Rank() == 0 {
			for _, o := range c.Stats().Ops {
				fmt.Println(o.Op, o.Count, o.Bytes)
			}
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: AllReduce 3 24
}

// ExampleComm_Info prints how the ranks of a Comm communicate.
func ExampleComm_Info() {
	err := tutti.RunLocal(context.Background(), 2, tutti.Config{}, func(_ context.Context, c *tutti.Comm) error {
		if in := c.Info(); in.Rank == 0 {
			fmt.Printf("%s, generation %d: %d ranks, engine %s over %s\n", in.Name, in.Generation, in.Size, in.Engine, in.Transport)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: world, generation 0: 2 ranks, engine shm over memory
}

// ExampleComm_Seq finds the steps that all remaining ranks have completed before a rank was lost.
func ExampleComm_Seq() {
	var out sync.Mutex
	err := tutti.RunLocal(context.Background(), 3, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		var ends []uint64 // by step: the number of its last operation
		for {
			if len(ends) == 4 && c.Rank() == 2 {
				return nil // closes its Comm
			}
			x := []float64{1}
			err := errors.Join(c.AllReduce(ctx, tutti.Of(x), tutti.Sum), c.Barrier(ctx))
			if err != nil {
				break
			}
			ends = append(ends, c.Seq())
		}
		next, done, err := c.Shrink(ctx)
		if err != nil {
			return err
		}
		defer next.Close()
		steps, _ := slices.BinarySearch(ends, done+1)
		out.Lock()
		defer out.Unlock()
		fmt.Printf("rank %d of %d continues after step %d\n", next.Rank(), next.Size(), steps)
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// rank 0 of 2 continues after step 4
	// rank 1 of 2 continues after step 4
}

// ExampleBatch starts two operations as one, and waits for them later.
func ExampleBatch() {
	err := tutti.RunLocal(context.Background(), 2, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		weights, bias := []float64{1, 2}, []float64{3}
		w, err := c.Batch().AllReduce(tutti.Of(weights), tutti.Sum).AllReduce(tutti.Of(bias), tutti.Max).Start(ctx)
		if err != nil {
			return err
		}
		// Other work can run here.
		if err := w.Wait(ctx); err != nil {
			return err
		}
		if c.Rank() == 1 {
			fmt.Println(weights, bias)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: [2 4] [3]
}

// ExampleComm_Split makes a group of the even ranks and a group of the odd ranks.
func ExampleComm_Split() {
	err := tutti.RunLocal(context.Background(), 5, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		group, err := c.Split(ctx, c.Rank()%2, c.Rank())
		if err != nil {
			return err
		}
		defer group.Close()
		sum, err := tutti.AllReduceValue(ctx, group, c.Rank(), tutti.Sum)
		if err != nil {
			return err
		}
		if c.Rank() == 4 {
			fmt.Printf("rank %d of %d, sum %d\n", group.Rank(), group.Size(), sum)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: rank 2 of 3, sum 6
}

// ExampleComm_Scan numbers the records of all ranks without gaps. Each rank needs to know how many records the
// ranks before it have.
func ExampleComm_Scan() {
	records := []int{3, 1, 4} // by rank
	err := tutti.RunLocal(context.Background(), 3, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		mine, end := []int{records[c.Rank()]}, make([]int, 1)
		if err := c.Scan(ctx, tutti.Of(end), tutti.Of(mine), tutti.Sum); err != nil {
			return err
		}
		if c.Rank() == 2 {
			fmt.Printf("rank %d has records %d to %d\n", c.Rank(), end[0]-mine[0], end[0]-1)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: rank 2 has records 4 to 7
}

// ExampleComm_AllGatherV gathers a different number of elements from each rank.
func ExampleComm_AllGatherV() {
	counts := []int{1, 2, 3}
	err := tutti.RunLocal(context.Background(), 3, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		mine := make([]int32, counts[c.Rank()])
		for i := range mine {
			mine[i] = int32(10*c.Rank() + i)
		}
		flat := make([]int32, 6)
		if err := c.AllGatherV(ctx, tutti.Of(flat).Parts(nil, counts...), tutti.Of(mine)); err != nil {
			return err
		}
		if c.Rank() == 2 {
			fmt.Println(flat)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: [0 10 11 20 21 22]
}

// ExampleComm_AllToAllV sends each rank a share of another length. Rank r sends to+1 elements to rank to, so it
// receives r+1 elements from every rank.
func ExampleComm_AllToAllV() {
	err := tutti.RunLocal(context.Background(), 3, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		out := make([]int, 1+2+3)
		for i := range out {
			out[i] = 10*c.Rank() + i
		}
		n := c.Rank() + 1
		in := make([]int, 3*n)
		if err := c.AllToAllV(ctx, tutti.Of(in).Parts(nil, n, n, n), tutti.Of(out).Parts(nil, 1, 2, 3)); err != nil {
			return err
		}
		if c.Rank() == 1 {
			fmt.Println(in)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: [1 2 11 12 21 22]
}

// ExampleAllGatherSlices gathers slices whose lengths the other ranks do not know.
func ExampleAllGatherSlices() {
	err := tutti.RunLocal(context.Background(), 3, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		words, err := tutti.AllGatherSlices(ctx, c, []byte("abc")[:c.Rank()+1])
		if c.Rank() == 0 {
			fmt.Printf("%s\n", words)
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: [a ab abc]
}

// ExampleComm_Agree decides on all ranks whether a step counts. The gradient of one rank is too large, so it does not.
func ExampleComm_Agree() {
	err := tutti.RunLocal(context.Background(), 3, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		norm := []float64{0.5, 1e9, 0.25}[c.Rank()]
		counts, err := c.Agree(ctx, norm < 100)
		if c.Rank() == 0 {
			fmt.Println("the step counts:", counts)
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: the step counts: false
}

// ExampleComm_Shrink continues without rank 1, which ends after two operations. All remaining ranks have completed
// at least the operations up to done. The code of a job of processes is the same: see the example LostProcess.
func ExampleComm_Shrink() {
	err := tutti.RunLocal(context.Background(), 3, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		for step := 0; ; step++ {
			if c.Rank() == 1 && step == 2 {
				return nil
			}
			if _, err := tutti.AllReduceValue(ctx, c, 1, tutti.Sum); err != nil {
				break
			}
		}
		next, done, err := c.Shrink(ctx)
		if err != nil {
			return err
		}
		defer next.Close()
		n, err := tutti.AllReduceValue(ctx, next, 1, tutti.Sum)
		if c.Rank() == 2 {
			fmt.Printf("rank 2 is rank %d of %d, sum %d, done is 1 or 2: %v\n", next.Rank(), next.Size(), n, done == 1 || done == 2)
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: rank 2 is rank 1 of 2, sum 2, done is 1 or 2: true
}

// ExampleError shows the error for a rank that does not arrive: it names the rank,
// the operation and the reason.
func ExampleError() {
	cfg := tutti.Config{Timeout: 20 * time.Millisecond} // a context's deadline does the same for one call
	err := tutti.RunLocal(context.Background(), 2, cfg, func(ctx context.Context, c *tutti.Comm) error {
		if c.Rank() == 1 {
			<-c.Done()
			return nil
		}
		return c.Barrier(ctx)
	})
	var e *tutti.Error
	if errors.Is(err, tutti.ErrTimeout) && errors.As(err, &e) {
		fmt.Println(e.Op, e.Seq)
		fmt.Println(e.Cause)
	}
	// Output:
	// Barrier 1
	// timed out: not done after 20ms: rank 1 has not arrived (rank 1 has called nothing yet)
}

// ExampleComm_SendRecv passes a value around a ring.
func ExampleComm_SendRecv() {
	err := tutti.RunLocal(context.Background(), 3, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		in, out := make([]int, 1), []int{c.Rank()}
		next, prev := (c.Rank()+1)%3, (c.Rank()+2)%3
		if err := c.SendRecv(ctx, next, tutti.Of(out), prev, tutti.Of(in), 0); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(in)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: [2]
}

// ExampleComm_Send sends a message that is shorter than the buffer of its receiver.
func ExampleComm_Send() {
	err := tutti.RunLocal(context.Background(), 2, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		const tag = 1
		if c.Rank() == 1 {
			return c.Send(ctx, 0, tutti.Of([]float32{1, 2, 3}), tag)
		}
		buf := make([]float32, 100)
		m, err := c.Recv(ctx, 1, tutti.Of(buf), tag)
		if err != nil {
			return err
		}
		fmt.Println(m.Len, m.Type, "from rank", m.From, buf[:m.Len])
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: 3 float32 from rank 1 [1 2 3]
}

// ExampleComm_Recv receives from the ranks in the order in which they send. The result does not
// depend on it.
func ExampleComm_Recv() {
	err := tutti.RunLocal(context.Background(), 4, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		const tag = 1
		if c.Rank() > 0 {
			return c.Send(ctx, 0, tutti.Of([]int{10 * c.Rank()}), tag)
		}
		results := make([]int, c.Size())
		buf := make([]int, 1)
		for range c.Size() - 1 {
			m, err := c.Recv(ctx, tutti.AnyRank, tutti.Of(buf), tag)
			if err != nil {
				return err
			}
			results[m.From] = buf[0]
		}
		fmt.Println(results)
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: [0 10 20 30]
}

// ExampleRecvSlice receives a message whose length the receiver does not know.
func ExampleRecvSlice() {
	err := tutti.RunLocal(context.Background(), 2, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		const tag = 1
		if c.Rank() == 1 {
			return c.Send(ctx, 0, tutti.Of([]byte("any length")), tag)
		}
		text, m, err := tutti.RecvSlice[byte](ctx, c, tutti.AnyRank, tag)
		if err != nil {
			return err
		}
		fmt.Printf("%s, from rank %d\n", text, m.From)
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: any length, from rank 1
}

// ExampleAllToAllSlices sends each rank a slice of another length.
func ExampleAllToAllSlices() {
	err := tutti.RunLocal(context.Background(), 3, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		shares := make([][]byte, c.Size())
		for to := range shares {
			shares[to] = bytes.Repeat([]byte("abc")[c.Rank():c.Rank()+1], to+1)
		}
		got, err := tutti.AllToAllSlices(ctx, c, shares)
		if c.Rank() == 2 {
			fmt.Printf("%s\n", got)
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: [aaa bbb ccc]
}

// ExampleBroadcastSlice copies a slice to ranks that do not know its length.
func ExampleBroadcastSlice() {
	err := tutti.RunLocal(context.Background(), 2, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		var primes []int
		if c.Rank() == 0 {
			primes = []int{2, 3, 5, 7}
		}
		primes, err := tutti.BroadcastSlice(ctx, c, primes, 0)
		if c.Rank() == 1 {
			fmt.Println(primes)
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: [2 3 5 7]
}
