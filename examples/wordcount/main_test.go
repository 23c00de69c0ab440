package main

import (
	"bufio"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/tutti-go/tutti"
)

// Example counts the words of a text of several pieces on three ranks.
func Example() {
	text := strings.Repeat("the word and the other word\n", 100_000)
	err := tutti.RunLocal(context.Background(), 3, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		if c.Rank() == 0 {
			return master(ctx, c, bufio.NewReader(strings.NewReader(text)))
		}
		return work(ctx, c)
	})
	if err != nil {
		panic(err)
	}
	// Output: 4 different words; "the" occurs 200000 times
}

// TestGuide checks that the guide shows this program.
func TestGuide(t *testing.T) {
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile("../../docs/guide/messages.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(program), "package main")
	if !strings.Contains(string(guide), "```go\npackage main"+code+"```\n") {
		t.Error("docs/guide/messages.md does not contain main.go, from its package clause on")
	}
}
