package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"spangap/clients/go/ping"
)

// stream is a PingStream with a watch over the ping under way.
type stream struct {
	grpc.ClientStream
	cancel context.CancelFunc
	watch  *time.Timer
	late   atomic.Bool // the watch ended the stream
}

// openStream begins to watch at once: the opening is part of the ping it is for.
func (c *caller) openStream() (*stream, error) {
	ctx, cancel := context.WithCancel(c.load.calls)
	s := &stream{cancel: cancel}
	s.watch = time.AfterFunc(c.load.settings.timeout, func() {
		s.late.Store(true)
		cancel()
	})
	var err error
	s.ClientStream, err = c.channel.NewStream(ctx, &ping.Ping_ServiceDesc.Streams[0], ping.Ping_PingStream_FullMethodName,
		c.options...)
	if err != nil {
		return nil, s.end(err, c.load.settings.timeout)
	}
	return s, nil
}

// end gives the stream up and says why a ping of it failed.
func (s *stream) end(err error, timeout time.Duration) error {
	s.watch.Stop()
	s.cancel()
	if s.late.Load() {
		return status.Error(codes.DeadlineExceeded, fmt.Sprintf("no response within %v", timeout))
	}
	if errors.Is(err, io.EOF) {
		return status.Error(codes.Unavailable, "the target ended the stream")
	}
	return err
}

// exchange makes one ping over the worker's stream, which is opened when there is none.
func (c *caller) exchange(traced *record) error {
	timeout := c.load.settings.timeout
	if c.load.settings.trace {
		c.request.TraceId = append(c.request.TraceId[:0], traced.traceID[:]...)
		c.request.SpanId = append(c.request.SpanId[:0], traced.spanID[:]...)
	}
	if c.stream == nil {
		opened, err := c.openStream()
		if err != nil {
			return err
		}
		c.stream = opened
	} else {
		c.stream.watch.Reset(timeout)
	}
	s := c.stream
	err := s.SendMsg(&c.request)
	if err == nil || errors.Is(err, io.EOF) {
		// After a failed send only the receiver is told why the stream ended.
		err = s.RecvMsg(&c.answer)
	}
	if err != nil {
		c.stream = nil
		return s.end(err, timeout)
	}
	if !s.watch.Stop() {
		// The watch ended the stream just after the response.
		c.stream = nil
		s.cancel()
	}
	return nil
}

// close ends the worker's stream in order.
func (c *caller) close() {
	if c.stream != nil {
		c.stream.watch.Stop()
		_ = c.stream.CloseSend()
	}
}
