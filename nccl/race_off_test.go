//go:build !race

package nccl_test

const raced = false
