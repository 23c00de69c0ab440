package main

import (
	"context"
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// loopback returns both ends of a TCP connection on this host, non-blocking and
// without Nagle's algorithm.
func loopback() (ends [2]int, err error) {
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return ends, err
	}
	defer unix.Close(listener)
	if err = unix.Bind(listener, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return ends, err
	}
	if err = unix.Listen(listener, 1); err != nil {
		return ends, err
	}
	addr, err := unix.Getsockname(listener)
	if err != nil {
		return ends, err
	}
	if ends[0], err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); err != nil {
		return ends, err
	}
	if err = unix.Connect(ends[0], addr); err != nil {
		return ends, errors.Join(err, unix.Close(ends[0]))
	}
	if ends[1], _, err = unix.Accept(listener); err != nil {
		return ends, errors.Join(err, unix.Close(ends[0]))
	}
	for _, fd := range ends {
		if err = errors.Join(err, unix.SetNonblock(fd, true),
			unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)); err != nil {
			return ends, errors.Join(err, unix.Close(ends[0]), unix.Close(ends[1]))
		}
	}
	return ends, nil
}

// exchange sends out and receives in at the same time. It polls the non-blocking socket without
// rest until both are complete, the connection fails or closes, or ctx ends. Each end of the
// connection has one thread that calls it.
func exchange(ctx context.Context, fd int, out, in []byte) error {
	for spins := 0; len(out)+len(in) > 0; spins++ {
		if len(out) > 0 {
			n, err := unix.Write(fd, out)
			if err != nil && err != unix.EAGAIN && err != unix.EINTR {
				return err
			}
			out = out[max(n, 0):]
		}
		if len(in) > 0 {
			n, err := unix.Read(fd, in)
			if n == 0 && err == nil {
				return io.ErrUnexpectedEOF
			}
			if err != nil && err != unix.EAGAIN && err != unix.EINTR {
				return err
			}
			in = in[max(n, 0):]
		}
		if spins%1024 == 1023 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}
