//go:build !linux

package job

import (
	"context"
	"errors"

	"github.com/tutti-go/tutti/internal/engine"
)

// linuxBodies exist on Linux only.
var linuxBodies map[string]body

// pairs needs /proc, which this system does not have.
func pairs(context.Context, engine.Engine) error { return nil }

func dropPrivileges() error { return errors.ErrUnsupported }
