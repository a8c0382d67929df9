package main

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"spangap/clients/go/ping"
)

// load is what all workers of a run share. None of it changes during the calls.
type load struct {
	settings *clientSettings
	times    timetable
	calls    context.Context // cancelled when the calls under way have to end
	channels []*channel
	payload  []byte
	recorder *recorder // nil: no records
}

// caller makes the calls of one worker, one after the other.
type caller struct {
	load    *load
	channel *channel
	tally   *tally
	request ping.PingRequest
	answer  ping.PingResponse
	ids     *ids
	watch   *watch
	stream  grpc.ClientStream // of PingStream; nil: to be opened
}

func newCaller(l *load, worker int, t *tally) *caller {
	c := &caller{
		load:    l,
		channel: l.channels[worker%len(l.channels)],
		tally:   t,
		ids:     newIDs(),
		watch:   newWatch(l.calls, l.times.start, l.settings.timeout),
	}
	c.request.Payload = l.payload
	c.request.ResponseBytes = l.settings.responseBytes
	c.request.ThinkNs = l.settings.thinkNs
	return c
}

// call makes one call and counts it. The caller has set the outcome's phase and lateness; sent is a clock reading from
// just before.
func (c *caller) call(o *outcome, sent time.Time) {
	s := c.load.settings
	var traced record
	if s.trace {
		traced.traceID, traced.spanID = c.ids.trace(), c.ids.span()
	}
	before := c.channel.current.Load()
	c.watch.begin(sent)
	var err error
	if s.stream {
		err = c.exchange(&traced)
	} else {
		err = c.unary(&traced)
	}
	o.fromSend = time.Since(sent)
	late := c.watch.end()
	// A watch that the kernel woke late may have let a response through.
	if (late && err != nil) || (err == nil && o.fromSend > s.timeout) {
		err = c.watch.tooLate()
	}
	if late || (s.stream && err != nil) {
		c.renew()
	}
	o.code, o.reason, o.unkept = codes.OK, "", false
	if err != nil {
		failure := status.Convert(err)
		o.code, o.reason = knownCode(failure.Code()), failure.Message()
	}
	o.slow = o.fromSend > s.slow
	if s.records == recordAll || (s.records == recordSlow && o.slow && o.phase == measured) {
		traced.at, traced.duration, traced.lateness = sent, o.fromSend, o.lateness
		traced.code = uint8(o.code)
		if o.phase == measured {
			traced.flags |= flagMeasured
		}
		if o.slow {
			traced.flags |= flagSlow
		}
		if s.stream {
			traced.flags |= flagStream
		}
		traced.connection = unknownConnection
		// A call during which the connection changed may have used either.
		if c.channel.current.Load() == before {
			traced.connection = uint16(before)
		}
		o.unkept = !c.load.recorder.keep(&traced)
	}
	c.tally.add(o)
}

func (c *caller) unary(traced *record) error {
	var ctx context.Context = c.watch
	if c.load.settings.trace {
		ctx = metadata.AppendToOutgoingContext(ctx, traceparentHeader, traceparent(traced.traceID, traced.spanID))
	}
	return c.channel.Invoke(ctx, ping.Ping_Ping_FullMethodName, &c.request, &c.answer)
}

// renew abandons the stream and its context.
func (c *caller) renew() {
	c.watch.release()
	c.stream = nil
	c.watch = newWatch(c.load.calls, c.load.times.start, c.load.settings.timeout)
}

// close ends the worker's stream properly.
func (c *caller) close() {
	if c.stream != nil {
		_ = c.stream.CloseSend()
	}
	c.watch.deadline.Store(fired)
	c.watch.timer.Stop()
}
