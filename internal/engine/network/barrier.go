package network

import "github.com/tutti-go/tutti/internal/engine"

// disseminate is a barrier: after the round with distance d every rank knows
// of the 2d-1 ranks before it that they have come.
func (e *Engine) disseminate() error {
	for d := 1; d < e.size; d *= 2 {
		if err := e.swap(e.mod(e.rank+d), engine.Mem{}, e.mod(e.rank-d), engine.Mem{}); err != nil {
			return err
		}
	}
	return nil
}
