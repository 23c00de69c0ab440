//go:build !linux

package main

// bind does nothing where a process cannot be bound to a core.
func bind(int, int) error { return nil }
