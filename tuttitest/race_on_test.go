//go:build race

package tuttitest

const raced = true
