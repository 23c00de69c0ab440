// Wordcount counts the words of a text. Rank 0 reads it, and the other ranks count pieces:
// go run ./cmd/tutti run -n 4 --stdin -- go run ./examples/wordcount < README.md
package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/value"
)

const tagPiece, tagCounts = 1, 2

func main() {
	ctx := context.Background()
	c, err := tutti.Join(ctx, tutti.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if c.Rank() == 0 {
		err = master(ctx, c, bufio.NewReader(os.Stdin))
	} else {
		err = work(ctx, c)
	}
	if err == nil {
		err = c.Close()
	}
	if err != nil {
		log.Fatal(err)
	}
}

// master sends a piece to each worker that has sent its counts, and an empty piece at the end.
func master(ctx context.Context, c *tutti.Comm, text *bufio.Reader) error {
	total := make(map[string]int)
	for workers := c.Size() - 1; workers > 0; {
		counts, m, err := value.Recv[map[string]int](ctx, c, tutti.AnyRank, tagCounts)
		if err != nil {
			return err
		}
		for word, n := range counts {
			total[word] += n
		}
		var piece bytes.Buffer
		if _, err := io.Copy(&piece, io.LimitReader(text, 1<<20)); err != nil {
			return err
		}
		line, _ := text.ReadBytes('\n') // so that no word is cut
		piece.Write(line)
		if piece.Len() == 0 {
			workers--
		}
		if err := c.Send(ctx, m.From, tutti.Of(piece.Bytes()), tagPiece); err != nil {
			return err
		}
	}
	fmt.Printf("%d different words; %q occurs %d times\n", len(total), "the", total["the"])
	return nil
}

// work counts the words of pieces until one is empty. Its first counts are empty: they ask for a piece.
func work(ctx context.Context, c *tutti.Comm) error {
	for counts := make(map[string]int); ; {
		if err := value.Send(ctx, c, 0, counts, tagCounts); err != nil {
			return err
		}
		piece, _, err := tutti.RecvSlice[byte](ctx, c, 0, tagPiece)
		if err != nil || len(piece) == 0 {
			return err
		}
		clear(counts)
		for word := range bytes.FieldsSeq(piece) {
			counts[string(word)]++
		}
	}
}
