package network

import "github.com/tutti-go/tutti/internal/engine"

// disseminate is the dissemination barrier: after the round with distance d, the
// 2d-1 ranks before a rank are known to have arrived.
func (e *Engine) disseminate() error {
	for d := 1; d < e.size; d *= 2 {
		if err := e.swap(e.mod(e.rank+d), engine.Mem{}, e.mod(e.rank-d), engine.Mem{}); err != nil {
			return err
		}
	}
	return nil
}
