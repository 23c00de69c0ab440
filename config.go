package tutti

import "time"

// Config says how a Comm is made. Its zero value is right for most programs.
type Config struct {
	// Timeout bounds every operation whose context has no earlier deadline:
	// when it has waited that long for other ranks, it fails with ErrTimeout.
	// Zero means five minutes; negative, no bound.
	Timeout time.Duration
}

const defaultTimeout = 5 * time.Minute

// fill puts the defaults in.
func (c *Config) fill() {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
}
