package main

import (
	"errors"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"spangap/clients/go/ping"
)

// exchange makes one ping over the worker's stream. The first ping, and the first one after a failure, opens it.
func (c *caller) exchange(traced *record) error {
	if c.load.settings.trace {
		c.request.TraceId = append(c.request.TraceId[:0], traced.traceID[:]...)
		c.request.SpanId = append(c.request.SpanId[:0], traced.spanID[:]...)
	}
	if c.stream == nil {
		stream, err := c.channel.NewStream(c.watch, &ping.Ping_ServiceDesc.Streams[0], ping.Ping_PingStream_FullMethodName)
		if err != nil {
			return err
		}
		c.stream = stream
	}
	err := c.stream.SendMsg(&c.request)
	if err == nil || errors.Is(err, io.EOF) {
		// After a failed send, only a receive returns why the stream ended.
		err = c.stream.RecvMsg(&c.answer)
	}
	if errors.Is(err, io.EOF) {
		return status.Error(codes.Unavailable, "the target ended the stream")
	}
	return err
}
