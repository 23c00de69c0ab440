package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/nccl"
	"github.com/tutti-go/tutti/torch"
)

// A manifest describes the weights. The trainer stores it in the job's store under
// "weights".
type manifest struct {
	Rounds  int       `json:"rounds"` // how often all tensors are sent
	Tensors []*tensor `json:"tensors"`
}

// A tensor is one of the weights, with its device memory in this process.
type tensor struct {
	Name   string `json:"name"`
	DType  string `json:"dtype"`
	Shape  []int  `json:"shape"`
	SHA256 string `json:"sha256"`

	Got    string `json:"-"` // digest of the received data
	First  []byte `json:"-"` // its first bytes
	memory *cuda.Slice[byte]
	buffer nccl.Buffer
}

// types are the types by PyTorch's names.
var types = map[string]nccl.DataType{
	"uint8": nccl.Uint8, "int8": nccl.Int8, "int32": nccl.Int32, "int64": nccl.Int64,
	"float16": nccl.Float16, "bfloat16": nccl.BFloat16, "float32": nccl.Float32, "float64": nccl.Float64,
}

// A model is weights in device memory. The caller of receive closes it.
type model struct {
	Tensors []*tensor
	Bytes   int
	Rounds  int
	Best    time.Duration // of the rounds
	From    string
	dev     *cuda.Device
}

// receive joins the trainer's group, receives all tensors, checks their digests, and reports to the
// trainer. The error is about the transfer, not about digests. After an error the model's memory is
// freed; otherwise the caller closes the model.
func receive(ctx context.Context, cfg torch.Config) (_ *model, err error) {
	dev, err := cuda.Open(0, nil)
	if err != nil {
		return nil, err
	}
	cfg.Device = dev
	m := &model{dev: dev, From: cfg.Addr}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	g, err := torch.Join(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	if err := g.Store().Set(ctx, "receiver", []byte("Go")); err != nil {
		return nil, err
	}
	text, err := g.Store().Get(ctx, "weights")
	if err != nil {
		return nil, err
	}
	if err := m.prepare(text); err != nil {
		return nil, err
	}
	for range m.Rounds {
		if err := m.transfer(ctx, g); err != nil {
			return nil, err
		}
	}
	if err := m.digest(); err != nil {
		return nil, err
	}
	verdict := "ok"
	if err := m.wrong(); err != nil {
		verdict = err.Error()
	}
	if err := g.Store().Set(ctx, "checked", []byte(verdict)); err != nil {
		return nil, err
	}
	// The trainer hosts the store, so it waits until this rank has left.
	return m, g.Barrier(ctx)
}

// prepare allocates the tensors of the manifest. After an error m holds the tensors so far, and
// close frees them.
func (m *model) prepare(text []byte) error {
	var list manifest
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("the trainer's list of weights: %w", err)
	}
	m.Rounds = list.Rounds
	for _, t := range list.Tensors {
		n := 1
		for _, side := range t.Shape {
			n *= side
		}
		dtype := types[t.DType]
		if dtype == 0 || n < 0 {
			return fmt.Errorf("%s: %v of %s", t.Name, t.Shape, t.DType)
		}
		var err error
		if t.memory, err = cuda.Alloc[byte](m.dev, n*dtype.Size()); err != nil {
			return err
		}
		m.Tensors = append(m.Tensors, t)
		m.Bytes += n * dtype.Size()
		if err := t.memory.Fill(0); err != nil {
			return err
		}
		if t.buffer, err = nccl.Raw(m.dev, t.memory.Pointer(), n, dtype); err != nil {
			return err
		}
	}
	return nil
}

// transfer is one round: all tensors, one after the other, between two barriers. All members of the
// group must call it.
func (m *model) transfer(ctx context.Context, g *torch.Group) error {
	if err := g.Barrier(ctx); err != nil {
		return err
	}
	begin := time.Now()
	err := g.Do(ctx, func(c *nccl.Comm, s *cuda.Stream) error {
		for _, t := range m.Tensors {
			if err := c.Broadcast(nccl.Buffer{}, t.buffer, 0, s); err != nil {
				return err
			}
		}
		return nil
	})
	if took := time.Since(begin); m.Best == 0 || took < m.Best {
		m.Best = took
	}
	return errors.Join(err, g.Barrier(ctx))
}

// digest computes every tensor's digest from its device memory.
func (m *model) digest() error {
	for _, t := range m.Tensors {
		host := make([]byte, t.memory.Len())
		if err := t.memory.CopyTo(host); err != nil {
			return err
		}
		sum := sha256.Sum256(host)
		t.Got = hex.EncodeToString(sum[:])
		t.First = slices.Clone(host[:min(len(host), 32)])
	}
	return nil
}

// OK reports whether the tensor is the one that the trainer sent.
func (t *tensor) OK() bool { return t.Got == t.SHA256 }

// wrong returns an error that names the tensors with wrong digests.
func (m *model) wrong() error {
	for _, t := range m.Tensors {
		if !t.OK() {
			return fmt.Errorf("%w: %s is %s, and was %s", errDigest, t.Name, t.Got, t.SHA256)
		}
	}
	return nil
}

// Rate is the rate of the fastest round, in GiB/s.
func (m *model) Rate() float64 { return float64(m.Bytes) / (1 << 30) / max(m.Best.Seconds(), 1e-9) }

// String is one line.
func (m *model) String() string {
	return fmt.Sprintf("%d tensors, %.1f MiB from %s; fastest of %d rounds %.3f GiB/s", len(m.Tensors), float64(m.Bytes)/(1<<20),
		m.From, m.Rounds, m.Rate())
}

func (m *model) close() error {
	var errs []error
	for _, t := range m.Tensors {
		errs = append(errs, t.memory.Free())
	}
	return errors.Join(append(errs, m.dev.Close())...)
}
