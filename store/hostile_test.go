package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/store"
)

// raw connects to a server and sends nothing.
func raw(t *testing.T, s *store.Server) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	must(t, err)
	must(t, c.SetDeadline(time.Now().Add(deadline)))
	t.Cleanup(func() { c.Close() })
	return c
}

func validate() []byte {
	return binary.LittleEndian.AppendUint32([]byte{0}, 0x3C85F7CE)
}

func number(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }

// TestStrangers connects clients of several wrong kinds. Each is refused with one line on each
// side, and correct clients are not affected.
func TestStrangers(t *testing.T) {
	plain := store.Config{Plain: true}
	tls := encrypted(t)
	for name, c := range map[string]struct {
		server, client store.Config
		says, logs     string
	}{
		"wrong secret":            {secured(), store.Config{Secret: []byte("another")}, "the secrets differ", "the secrets differ"},
		"plain to secured":        {secured(), plain, "wants the job's secret", "wants the job's secret"},
		"secured to plain":        {plain, secured(), "is a plain one", "is a plain one"},
		"wrong secret, encrypted": {tls, store.Config{Secret: []byte("another"), Cert: tls.Cert, Key: tls.Key}, "the secrets differ", "the secrets differ"},
		"other certificate":       {tls, encrypted(t), "certificate", "certificate"},
		"encrypted to secured":    {secured(), tls, "no encrypted connection", "the client speaks TLS"},
		"secured to encrypted":    {tls, secured(), "refused", "the client does not speak TLS"},
		"encrypted to plain":      {plain, tls, "no encrypted connection", "the client speaks TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			log := new(journal)
			c.server.Logger = log.logger()
			s := listen(t, c.server)
			good := dial(t, s, c.server)
			_, err := store.Dial(within(t), s.Addr().String(), c.client)
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v; want %q", err, c.says)
			}
			var e *store.Error
			if !errors.As(err, &e) || e.Op != "Dial" {
				t.Errorf("%T", err)
			}
			log.await(t, c.logs)
			if lines := log.Lines(); len(lines) != 1 {
				t.Errorf("more than one line: %q", lines)
			}
			must(t, good.Ping(within(t)))
		})
	}
}

// TestGarbage sends bytes that are not a request. The server ends the connection with one line in
// its log, and serves other clients.
func TestGarbage(t *testing.T) {
	old := append([]byte{3}, append(number(5), "init/"...)...) // PyTorch 1.x: ADD
	for name, c := range map[string]struct {
		config store.Config
		send   []byte
		logs   string
	}{
		"HTTP to plain":       {store.Config{Plain: true}, []byte("GET / HTTP/1.1\r\n\r\n"), "not the store's protocol"},
		"HTTP to secured":     {secured(), []byte("GET / HTTP/1.1\r\n\r\n"), "not the store's protocol"},
		"HTTP to encrypted":   {encrypted(t), []byte("GET / HTTP/1.1\r\n\r\n"), "does not speak TLS"},
		"almost the mark":     {secured(), bytes.Repeat([]byte("tutti"), 8), "not the store's protocol"},
		"PyTorch 1.x":         {store.Config{Plain: true}, old, "PyTorch 1.x is not supported"},
		"PyTorch 1.x, SET":    {store.Config{Plain: true}, append([]byte{0}, number(5)...), "PyTorch 1.x is not supported"},
		"PyTorch 1.x secured": {secured(), old, "PyTorch 1.x is not supported"},
		"unknown request":     {store.Config{Plain: true}, append(validate(), 19), "request 19"},
		"VALIDATE twice":      {store.Config{Plain: true}, append(validate(), validate()...), "a second time"},
		"long key":            {store.Config{Plain: true}, append(append(validate(), 3), number(8<<10+1)...), "a key of 8193 bytes"},
		"endless value":       {store.Config{Plain: true}, append(append(append(validate(), 1), number(0)...), number(1<<63)...), "a value of 9223372036854775808 bytes"},
		"too many keys":       {store.Config{Plain: true}, append(append(validate(), 6), number(1<<40)...), "1099511627776 keys"},
		"while waiting": {
			store.Config{Plain: true},
			append(append(append(append(validate(), 6), number(1)...), append(number(1), 'a')...), 7), "GETNUMKEYS while another request waited",
		},
		"not a number": {
			store.Config{Plain: true},
			bytes.Join([][]byte{validate(), {1}, number(1), []byte("a"), number(1), []byte("b"), {4}, number(1), []byte("a"), number(1)}, nil),
			"not a number",
		},
	} {
		t.Run(name, func(t *testing.T) {
			log := new(journal)
			c.config.Logger = log.logger()
			s := listen(t, c.config)
			conn := raw(t, s)
			_, err := conn.Write(c.send)
			must(t, err)
			log.await(t, c.logs)
			_, _ = io.Copy(io.Discard, conn) // until the server ends the connection
			if lines := log.Lines(); len(lines) != 1 {
				t.Errorf("more than one line: %q", lines)
			}
			must(t, dial(t, s, c.config).Ping(within(t)))
		})
	}
}

// TestSlow sends the beginning of a request or a handshake, and no more. The server ends the
// connection after RequestTime.
func TestSlow(t *testing.T) {
	for name, c := range map[string]struct {
		config store.Config
		send   []byte
	}{
		"silent":         {store.Config{Plain: true}, nil},
		"silent secured": {secured(), nil},
		"in the hello":   {secured(), []byte("tut")},
		"in a request":   {store.Config{Plain: true}, append(validate(), 1, 5)},
	} {
		t.Run(name, func(t *testing.T) {
			log := new(journal)
			c.config.Logger = log.logger()
			c.config.Limits.RequestTime = 20 * time.Millisecond
			s := listen(t, c.config)
			conn := raw(t, s)
			_, err := conn.Write(c.send)
			must(t, err)
			log.await(t, "too slow")
			if n, err := conn.Read(make([]byte, 100)); err == nil {
				t.Errorf("%d bytes", n)
			}
		})
	}
}

// TestIdle is idle between requests only, which is allowed. On a busy machine the client may be
// slow within a request; then the test tries again.
func TestIdle(t *testing.T) {
	var err error
	for patience := time.Second; patience < 10*time.Second; patience *= 2 {
		config := store.Config{Plain: true, Limits: store.Limits{RequestTime: patience}}
		s := listen(t, config)
		var c *store.Client
		if c, err = store.Dial(within(t), s.Addr().String(), config); err != nil {
			continue
		}
		time.Sleep(patience + patience/2)
		err = c.Ping(within(t))
		must(t, c.Close())
		if err == nil {
			return
		}
	}
	t.Error(err)
}

// TestExhaust reaches each limit of a server. Clients that connected before are still served.
func TestExhaust(t *testing.T) {
	log := new(journal)
	config := store.Config{Plain: true, Logger: log.logger(), Limits: store.Limits{
		Keys: 10, Queued: 3, Bytes: 1 << 20, Conns: 6, Waiting: 2,
	}}
	s := listen(t, config)
	good := dial(t, s, config)
	stranger := dial(t, s, config)
	ctx := within(t)
	must(t, good.Set(ctx, "mine", []byte("value")))
	for i := range 20 {
		_ = stranger.Set(ctx, strings.Repeat("k", i), nil)
	}
	log.await(t, "more than 10 keys")
	must(t, good.Set(ctx, "mine", []byte("value 2")))
	for _, k := range mustList(t, good) {
		if k != "mine" {
			_, err := good.Delete(ctx, k)
			must(t, err)
		}
	}
	for range 5 {
		_ = stranger.Push(ctx, "q", nil)
	}
	log.await(t, "more than 3 queued values")
	for range 3 {
		_, _ = good.TryPop(ctx, "q")
	}
	for range 20 {
		_ = stranger.Append(ctx, "a", make([]byte, 100_000))
	}
	log.await(t, "no room for")
	_, err := good.Delete(ctx, "a")
	must(t, err)
	must(t, good.Set(ctx, "large", make([]byte, 500_000)))

	for range 3 {
		go func() { _ = stranger.Wait(ctx, "never") }()
	}
	log.await(t, "more than 2 waiting requests")
	for range 8 {
		raw(t, s)
	}
	log.await(t, "evicted to make room")
	must(t, good.Ping(ctx))
	got, err := good.Get(ctx, "mine")
	wants(t, got, err, "value 2")
}

// TestFlood opens four times as many connections as may be pending. Each sends the beginning of a
// long TLS message. The server's memory stays within its limits, and correct clients connect.
func TestFlood(t *testing.T) {
	for name, config := range map[string]store.Config{"plain": {Plain: true}, "secured": secured(), "encrypted": encrypted(t)} {
		t.Run(name, func(t *testing.T) {
			log := new(journal)
			config.Logger = log.logger()
			config.Limits.Pending = 64
			s := listen(t, config)
			good := dial(t, s, config)
			flood := clientHello(65_000)[:15_000] // the server refuses more at once
			var conns []net.Conn
			for range 4 * config.Limits.Pending {
				c := raw(t, s)
				switch name {
				case "encrypted":
					_, _ = c.Write(flood)
				case "secured":
					_, _ = c.Write([]byte("tut"))
				}
				conns = append(conns, c)
			}
			log.Await(t, "refused a connection", 3*config.Limits.Pending) // some may time out first
			log.await(t, "evicted to make room")
			open := 0
			for _, c := range conns {
				must(t, c.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
				if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
					open++
				}
			}
			if open > config.Limits.Pending {
				t.Errorf("%d unproven connections are open", open)
			}
			must(t, good.Ping(within(t)))
			for range 8 {
				must(t, dial(t, s, config).Ping(within(t)))
			}
		})
	}
}

// TestHerd connects many more correct clients at the same time than may be pending: all of them
// succeed.
func TestHerd(t *testing.T) {
	config := encrypted(t)
	config.Limits.Pending = 16
	config.Logger = slog.New(slog.DiscardHandler)
	s := listen(t, config)
	ctx := within(t)
	errs := make([]error, 300)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			c, err := store.Dial(ctx, s.Addr().String(), config)
			if err == nil {
				err = errors.Join(c.Ping(ctx), c.Close())
			}
			errs[i] = err
		})
	}
	all.Wait()
	must(t, errors.Join(errs...))
}

// clientHello returns a TLS record with a handshake message of size bytes, without its last
// hundred bytes.
func clientHello(size int) []byte {
	message := append([]byte{1, 0, byte(size >> 8), byte(size)}, make([]byte, size-100)...)
	var records []byte
	for part := range slices.Chunk(message, 16_000) {
		records = append(records, 22, 3, 1, byte(len(part)>>8), byte(len(part)))
		records = append(records, part...)
	}
	return records
}

// TestUnprovenBytes sends more than unprovenBytes before its proof and before its time ends. The
// reason of the refusal is the number of bytes.
func TestUnprovenBytes(t *testing.T) {
	log := new(journal)
	config := encrypted(t)
	config.Logger = log.logger()
	s := listen(t, config)
	_, _ = raw(t, s).Write(clientHello(65_000))
	log.await(t, "the client sent too much before it authenticated")
}

// TestProbe connects and ends the connection before its proof, as a client does whose context ends. The line in
// the log is for debugging only.
func TestProbe(t *testing.T) {
	for name, config := range map[string]store.Config{"secret": {Secret: []byte("secret")}, "TLS": encrypted(t)} {
		t.Run(name, func(t *testing.T) {
			log := new(journal)
			config.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			s := listen(t, config)
			must(t, raw(t, s).Close())
			log.await(t, "ended the connection before it authenticated")
			if text := log.String(); strings.Contains(text, "WARN") || !strings.Contains(text, "DEBUG") {
				t.Errorf("the log:\n%s", text)
			}
		})
	}
}

func mustList(t *testing.T, s store.Store) []string {
	t.Helper()
	keys, err := s.List(within(t))
	must(t, err)
	return keys
}

// TestFull fills a server with authenticated connections, so that no pending one can be evicted.
func TestFull(t *testing.T) {
	log := new(journal)
	config := secured()
	config.Limits.Conns, config.Logger = 2, log.logger()
	s := listen(t, config)
	a, b := dial(t, s, config), dial(t, s, config)
	if _, err := store.Dial(within(t), s.Addr().String(), config); !errors.Is(err, store.ErrRefused) || !strings.Contains(err.Error(), "too many") {
		t.Error(err)
	}
	log.await(t, "too many connections")
	must(t, a.Close())
	must(t, b.Ping(within(t)))
	eventually(t, "room", func() bool {
		c, err := store.Dial(within(t), s.Addr().String(), config)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// TestConfig checks that unsafe configurations are refused.
func TestConfig(t *testing.T) {
	for says, c := range map[string]struct {
		addr   string
		config store.Config
	}{
		"no secret":                             {"127.0.0.1:0", store.Config{}},
		"the secret has 1 bytes, and must have": {"0.0.0.0:0", store.Config{Secret: []byte("s"), Cert: []byte("c"), Key: []byte("k")}},
		"without a key":                         {"127.0.0.1:0", store.Config{Secret: []byte("s"), Cert: []byte("c")}},
		"neither secret":                        {"127.0.0.1:0", store.Config{Plain: true, Secret: []byte("s")}},
		"job certificate":                       {"127.0.0.1:0", store.Config{Secret: []byte("s"), Cert: []byte("c"), Key: []byte("k")}},
		"listen tcp: address 99999: invalid p":  {"127.0.0.1:99999", secured()},
	} {
		s, err := store.Listen(t.Context(), c.addr, c.config)
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
	s := listen(t, store.Config{Plain: true})
	if _, err := store.Dial(t.Context(), s.Addr().String(), store.Config{}); !errors.Is(err, store.ErrInvalid) {
		t.Error(err)
	}
}

// TestGone ends the connection of the server during a call, which then returns ErrLost. A
// goroutine plays the server.
func TestGone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b := make([]byte, 10)
			_, _ = io.ReadFull(c, b) // VALIDATE, PING
			_, _ = c.Write(b[6:])
			_, _ = io.ReadFull(c, b[:1])
			c.Close()
		}
	}()
	c, err := store.Dial(within(t), l.Addr().String(), store.Config{Plain: true})
	must(t, err)
	defer c.Close()
	for range 2 { // the second call uses a new connection
		if _, err := c.NumKeys(within(t)); !errors.Is(err, store.ErrLost) {
			t.Error(err)
		}
	}
}
