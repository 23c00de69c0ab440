package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/fakegpu"
	"github.com/tutti-go/tutti/nccl"
	"github.com/tutti-go/tutti/store"
	"github.com/tutti-go/tutti/torch"
)

func TestMain(m *testing.M) {
	var control *fakegpu.Control
	os.Exit(fakegpu.Main(&control, func() int {
		if control == nil {
			fmt.Println("skipped: these tests need the fake GPU")
			return 0
		}
		return m.Run()
	}))
}

// trainer does what weights.py's send does, in Go, with PyTorch's protocol. It returns the server's
// verdict on the digests. It runs in a goroutine of its own beside receive, and ends with an error
// when ctx does.
func trainer(ctx context.Context, s *store.Server, list manifest, data [][]byte) (verdict string, err error) {
	m := s.Store()
	for m.Members() < 1 { // the server; PyTorch counts itself too
		if err := ctx.Err(); err != nil {
			return "", err
		}
		time.Sleep(time.Millisecond)
	}
	text, err := json.Marshal(list)
	if err != nil {
		return "", err
	}
	lib, err := nccl.Load("")
	if err != nil {
		return "", err
	}
	id, err := lib.NewID()
	if err != nil {
		return "", err
	}
	if err := errors.Join(m.Set(ctx, "weights", text), m.Set(ctx, "default_pg/0//cuda//0", id[:])); err != nil {
		return "", err
	}
	dev, err := cuda.Open(1, nil)
	if err != nil {
		return "", err
	}
	defer dev.Close()
	stream, err := dev.NewStream()
	if err != nil {
		return "", err
	}
	defer stream.Close()
	comm, err := lib.Init(ctx, dev, id, 0, 2, nccl.Config{})
	if err != nil {
		return "", err
	}
	defer comm.Close()
	one, err := cuda.Alloc[float32](dev, 1)
	if err != nil {
		return "", err
	}
	defer func() { _ = one.Free() }()
	barrier := func() error {
		return errors.Join(comm.AllReduce(nccl.Of(one), nccl.Of(one), nccl.Sum, stream), stream.Wait(ctx))
	}
	for range list.Rounds {
		if err := barrier(); err != nil {
			return "", err
		}
		for i, t := range list.Tensors {
			x, err := cuda.Alloc[byte](dev, len(data[i]))
			if err != nil {
				return "", err
			}
			dtype := types[t.DType]
			b, err := nccl.Raw(dev, x.Pointer(), len(data[i])/dtype.Size(), dtype)
			if err != nil {
				return "", err
			}
			if err := errors.Join(x.CopyFrom(data[i]), comm.Broadcast(b, b, 0, stream), stream.Wait(ctx), x.Free()); err != nil {
				return "", err
			}
		}
		if err := barrier(); err != nil {
			return "", err
		}
	}
	says, err := m.Get(ctx, "checked")
	return string(says), errors.Join(err, barrier())
}

// TestReceive sends three tensors, once correctly and once with a wrong digest, and checks the
// page. The goroutine of trainer writes verdict before it sends on trained.
func TestReceive(t *testing.T) {
	data := [][]byte{make([]byte, 4*1000), make([]byte, 2*6*7), make([]byte, 8)}
	for i := range data {
		for j := range data[i] {
			data[i][j] = byte(i + j*j)
		}
	}
	for _, spoilt := range []bool{false, true} {
		list := manifest{Rounds: 2, Tensors: []*tensor{
			{Name: "norm", DType: "float32", Shape: []int{1000}},
			{Name: "up", DType: "bfloat16", Shape: []int{6, 7}},
			{Name: "step", DType: "int64", Shape: []int{1}},
		}}
		for i, x := range list.Tensors {
			sum := sha256.Sum256(data[i])
			x.SHA256 = hex.EncodeToString(sum[:])
		}
		if spoilt {
			list.Tensors[1].SHA256 = list.Tensors[0].SHA256
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s, err := store.Listen(ctx, "127.0.0.1:0", store.Config{Plain: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		verdict, trained := "", make(chan error, 1)
		go func() {
			var err error
			verdict, err = trainer(ctx, s, list, data)
			trained <- err
		}()
		m, err := receive(ctx, torch.Config{Rank: 1, Size: 2, Addr: s.Addr().String()})
		if err := errors.Join(err, <-trained); err != nil {
			t.Fatal(err)
		}
		show := new(server)
		defer show.close()
		look := func() string {
			w := httptest.NewRecorder()
			show.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			return w.Body.String()
		}
		if text := look(); !strings.Contains(text, "None have come yet") {
			t.Error(text)
		}
		show.show(m)
		text := look()
		if spoilt != strings.Contains(text, "wrong</b>") || spoilt != errors.Is(m.wrong(), errDigest) || spoilt == (verdict == "ok") {
			t.Errorf("spoilt: %v, but the server says %q and shows\n%s", spoilt, verdict, text)
		}
		for _, want := range []string{"norm", "bfloat16", "[6 7]", list.Tensors[0].SHA256[:16], "3 tensors"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is missing:\n%s", want, text)
			}
		}
	}
}

// TestManifest checks that invalid manifests are refused.
func TestManifest(t *testing.T) {
	dev, err := cuda.Open(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for _, text := range []string{"[]", `{"tensors":[{"name":"x","dtype":"complex64","shape":[1]}]}`, `{"tensors":[{"dtype":"int8","shape":[-1]}]}`} {
		m := &model{dev: dev}
		if err := m.prepare([]byte(text)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}
