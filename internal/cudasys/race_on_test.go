//go:build race

package cudasys

const raced = true
