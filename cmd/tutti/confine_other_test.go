//go:build !linux

package main

import "errors"

func confine() error { return errors.ErrUnsupported }
