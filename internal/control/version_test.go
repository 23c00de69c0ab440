package control

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/tutti-go/tutti/internal/engine"
)

// The peers in this file follow docs/design/security.md and use no code of this package. This package must
// understand them in all future versions.

// sendText sends a frame with the given JSON.
func sendText(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)); err != nil {
		t.Error(err)
	}
}

// receiveText receives a frame as JSON.
func receiveText(t *testing.T, c net.Conn) (text string, members map[string]any) {
	t.Helper()
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(c, body); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, &members); err != nil {
		t.Fatal(err)
	}
	return string(body), members
}

// proofOf computes a proof as documented.
func proofOf(secret, who, theirs, ours string, rank, size int) string {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte("tutti control 1 " + who))
	for _, nonce := range []string{theirs, ours} {
		raw, _ := base64.StdEncoding.DecodeString(nonce)
		h.Write(raw)
	}
	h.Write(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(rank)), uint64(size)))
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// aNonce is a nonce of 32 bytes.
var aNonce = base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456789ABCDEF"))

// TestOldRankJoins lets a rank of protocol 1 (commit 28e183b) connect to rank 0. Both sides, and a
// rank that has joined, report the same error.
func TestOldRankJoins(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	errs := make([]error, 2)
	var ranks sync.WaitGroup
	for r := range errs {
		cfg := Config{
			Rank: r, Size: 3, Addr: l.Addr().String(), Secret: []byte("secret"), Blob: []byte("{}"),
			Version: Version{Protocol: 7, ABI: "cafe", Release: "v1.2.3"}, Logger: slog.New(slog.DiscardHandler),
		}
		if r == 0 {
			cfg.Listener = l
		}
		ranks.Go(func() { _, errs[r] = Join(ctx, cfg) })
	}
	old, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	text, f := receiveText(t, old)
	// The whole text except the nonce: the encoding of a challenge never changes.
	want := `{"k":"challenge","version":1,"build":{"protocol":7,"abi":"cafe","release":"v1.2.3"},"rank":0,"nonce":"` + f["nonce"].(string) + `"}`
	if text != want {
		t.Errorf("the challenge is %s, want %s", text, want)
	}
	sendText(t, old, fmt.Sprintf(`{"k":"hello","version":1,"rank":2,"size":3,"nonce":%q,"proof":%q,"blob":"e30="}`,
		aNonce, proofOf("secret", "rank", f["nonce"].(string), aNonce, 2, 3)))
	_, f = receiveText(t, old)
	const says = "rank 2 runs an earlier version of tutti (protocol 1), and rank 0 runs tutti v1.2.3 (protocol 7, ABI cafe); build all ranks with the same version of tutti"
	if f["k"] != "refused" || f["reason"] != says {
		t.Errorf("the old rank is told %v", f)
	}
	ranks.Wait()
	for r, err := range errs {
		if err == nil || err.Error() != says || !errors.Is(err, engine.ErrMismatch) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestOldRankZero connects a rank to a rank 0 of protocol 1, which compares no versions. The rank
// must send a hello that rank 0 accepts, with Protocol1Blob.
func TestOldRankZero(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	joined := make(chan error, 1)
	go func() {
		_, err := Join(ctx, Config{
			Rank: 1, Size: 2, Addr: l.Addr().String(), Secret: []byte("secret"), Blob: []byte("new"), Protocol1Blob: []byte("old"),
			Version: Version{Protocol: 7, ABI: "cafe"}, Logger: slog.New(slog.DiscardHandler),
		})
		joined <- err
	}()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sendText(t, c, fmt.Sprintf(`{"k":"challenge","version":1,"rank":0,"nonce":%q}`, aNonce))
	text, f := receiveText(t, c)
	want := fmt.Sprintf(`{"k":"hello","version":1,"build":{"protocol":7,"abi":"cafe"},"rank":1,"size":2,"nonce":%q,"proof":%q,"blob":%q}`,
		f["nonce"], proofOf("secret", "rank", aNonce, f["nonce"].(string), 1, 2), base64.StdEncoding.EncodeToString([]byte("old")))
	if text != want {
		t.Errorf("the hello is %s, want %s", text, want)
	}
	const says = "rank 1 runs tutti (protocol 7, ABI cafe), and rank 0 runs an earlier version of tutti (protocol 1); build all ranks with the same version of tutti"
	if err := <-joined; err == nil || err.Error() != says || !errors.Is(err, engine.ErrMismatch) {
		t.Error(err)
	}
}

// TestRefusedForEver receives a refusal from a rank 0 of a later version, with unknown members.
func TestRefusedForEver(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	joined := make(chan error, 1)
	go func() {
		_, err := Join(ctx, Config{
			Rank: 1, Size: 2, Addr: l.Addr().String(), Version: Version{Protocol: 7, ABI: "cafe"}, Logger: slog.New(slog.DiscardHandler),
		})
		joined <- err
	}()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sendText(t, c, fmt.Sprintf(`{"k":"challenge","version":1,"build":{"protocol":7,"abi":"cafe","more":[1]},"rank":0,"nonce":%q,"later":{}}`, aNonce))
	receiveText(t, c)
	sendText(t, c, `{"k":"refused","rank":0,"reason":"no","mismatch":true,"later":[2]}`)
	if err := <-joined; err == nil || err.Error() != "no" || !errors.Is(err, engine.ErrMismatch) {
		t.Error(err)
	}
}

// TestVersionsDiffer lets ranks of two versions join. All report the same error. A rank of another
// version that connects to a formed job is refused and does not end the job.
func TestVersionsDiffer(t *testing.T) {
	one := Version{Protocol: 2, ABI: "aa", Release: "v1.0.0"}
	for says, other := range map[string]Version{
		"rank 2 runs tutti v1.0.0 (protocol 3, ABI aa), and rank 0 runs tutti v1.0.0 (protocol 2, ABI aa); build": {Protocol: 3, ABI: "aa", Release: "v1.0.0"},
		"rank 2 runs tutti (protocol 2, ABI ab), and rank 0 runs tutti v1.0.0 (protocol 2, ABI aa); build":        {Protocol: 2, ABI: "ab"},
		"rank 2 runs tutti v1.0.1 (protocol 2, ABI aa), and rank 0 runs tutti v1.0.0 (protocol 2, ABI aa); build": {Protocol: 2, ABI: "aa", Release: "v1.0.1"},
		"": {Protocol: 2, ABI: "aa"},
	} {
		for _, encrypt := range []bool{false, true} {
			errs := make([]error, 4)
			members := make([]*Member, len(errs))
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			cfg := Config{
				Size: len(errs), Addr: l.Addr().String(), Secret: []byte("secret"), Version: one, Logger: slog.New(slog.DiscardHandler),
			}
			if encrypt {
				cfg.TLS = newTLS(t)
			}
			var ranks sync.WaitGroup
			for r := range errs {
				mine := cfg
				mine.Rank = r
				switch r {
				case 0:
					mine.Listener = l
				case 2:
					mine.Version = other
				}
				ranks.Go(func() { members[r], errs[r] = Join(ctx, mine) })
			}
			ranks.Wait()
			for r, err := range errs {
				if says == "" && err != nil || says != "" && (err == nil || !strings.HasPrefix(err.Error(), says) || !errors.Is(err, engine.ErrMismatch)) {
					t.Errorf("encrypted %v: rank %d: %v, want %q", encrypt, r, err, says)
				}
			}
			if says == "" {
				cfg.Rank, cfg.Version = 1, Version{Protocol: 3, ABI: "aa"}
				if _, err := Join(ctx, cfg); !errors.Is(err, engine.ErrMismatch) {
					t.Errorf("one that comes late: %v", err)
				}
				if _, err := members[3].Gather(ctx, "k", []int{3}, nil); err != nil {
					t.Errorf("the job has ended: %v", err)
				}
				leave(t, members)
			}
			cancel()
		}
	}
}
