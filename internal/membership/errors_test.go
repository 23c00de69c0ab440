package membership

import (
	"context"
	"fmt"
	"testing"

	"github.com/tutti-go/tutti/store"
)

// TestText checks that texts show neither calls of the store nor its keys.
func TestText(t *testing.T) {
	for want, err := range map[string]error{
		"no Grow: context deadline exceeded": fmt.Errorf("no Grow: %w",
			&store.Error{Op: "Get", Key: "tutti/0/late/1", Addr: "192.0.2.1:7", Cause: context.DeadlineExceeded}),
		"no Grow: the store at 192.0.2.1:7: the connection was lost": fmt.Errorf("no Grow: %w",
			&store.Error{Op: "Get", Key: "tutti/0/late/1", Addr: "192.0.2.1:7", Cause: store.ErrLost}),
		"the queue is empty": &store.Error{Op: "Pop", Key: "q", Cause: store.ErrEmpty},
		"context canceled":   context.Canceled,
	} {
		if got := Text(err); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
