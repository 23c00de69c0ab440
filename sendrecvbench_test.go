package tutti_test

import (
	"context"
	"testing"

	"github.com/tutti-go/tutti"
)

// BenchmarkSendRecvLocal exchanges 16 bytes between two goroutines.
func BenchmarkSendRecvLocal(b *testing.B) {
	err := tutti.RunLocal(b.Context(), 2, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		src, dst := make([]byte, 16), make([]byte, 16)
		for range b.N {
			if err := c.SendRecv(ctx, 1-c.Rank(), tutti.Of(src), 1-c.Rank(), tutti.Of(dst), 1); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}
