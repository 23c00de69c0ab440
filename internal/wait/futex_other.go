//go:build !linux

package wait

import (
	"runtime"
	"sync/atomic"
	"time"
)

// futexWait only yields: on this system no memory is shared between processes.
func futexWait(*atomic.Uint64, uint32, time.Duration) { runtime.Gosched() }

func futexWake(*atomic.Uint64) {}

type futexWaiter struct{}

// Sleep only yields, like futexWait.
func (l *Words) Sleep(time.Duration) { runtime.Gosched() }

func yield() { runtime.Gosched() }

func sleepFor(d time.Duration) { time.Sleep(d) }

func sleepOn(_ *atomic.Uint64, _ uint32, d time.Duration) { time.Sleep(d) }
