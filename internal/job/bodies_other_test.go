//go:build !linux

package job

import (
	"context"
	"errors"

	"github.com/tutti-go/tutti/internal/engine"
)

// linuxBodies are there on Linux only.
var linuxBodies map[string]body

// pairs cannot look at what the kernel knows.
func pairs(context.Context, engine.Engine) error { return nil }

func dropPrivileges() error { return errors.ErrUnsupported }
