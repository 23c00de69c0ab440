//go:build race

package gpu_test

const raced = true
