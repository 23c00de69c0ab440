package hier

import (
	"context"

	"github.com/tutti-go/tutti/internal/engine"
)

var _ engine.Settler = (*Engine)(nil)

// Settle settles the inner engines, each for the calls of its own ranks. A failure of one of them is
// a failure of this group.
func (e *Engine) Settle(ctx context.Context) {
	for _, p := range []*subgroup{&e.localGroup, &e.leaderGroup} {
		if p.Engine == nil {
			continue
		}
		engine.Settle(ctx, p.Engine)
		if f := p.Failure(); f != nil && e.cause.Load() == nil {
			_ = e.fail(e.translate(f, p))
		}
	}
	engine.Settle(ctx, e.opt.All)
	if f := e.opt.All.Failure(); f != nil && e.cause.Load() == nil {
		_ = e.fail(e.translateAll(f))
	}
}
