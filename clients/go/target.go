package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"spangap/clients/go/ping"
)

// targetGrace is how long calls in progress may continue after the life line has ended.
const targetGrace = 2 * time.Second

// target answers pings.
type target struct {
	ping.UnimplementedPingServer
	settings *targetSettings
	zeros    []byte
	thinker  *thinker
	recorder *recorder // nil: no records

	byStatus   [len(statusNames)]atomic.Uint64
	malformed  atomic.Uint64
	unkept     atomic.Uint64
	inProgress atomic.Int64
	peak       atomic.Int64
}

// runTarget is the life of a target, from its socket to its exit code.
func runTarget(s *targetSettings, life *life, messages *messages) int {
	socket, err := net.Listen("tcp", s.listen)
	if err != nil {
		messages.failed(fmt.Sprintf("cannot listen on %s: %v", s.listen, plainest(err)))
		return exitFailed
	}
	thinker, err := newThinker()
	if err != nil {
		messages.failed(err.Error())
		return exitFailed
	}
	go func() {
		if err := thinker.run(); err != nil {
			complain(err)
		}
	}()
	t := &target{settings: s, zeros: make([]byte, s.responseBytes), thinker: thinker}
	if s.records == recordAll {
		if t.recorder, err = openRecorder(s.recordFile); err != nil {
			messages.failed(err.Error())
			return exitFailed
		}
	}
	server := t.server()
	served := make(chan error, 1)
	messages.send(listeningMessage{"listening", socket.Addr().String(), library})
	go func() {
		served <- server.Serve(&listener{Listener: socket, nodelay: s.nodelay, messages: messages})
	}()
	select {
	case err := <-served:
		messages.failed(fmt.Sprintf("cannot serve on %s: %v", s.listen, err))
		return exitFailed
	case <-life.over:
	}
	cutOff := t.stop(server)
	thinker.close()
	t.reportEnd(messages, cutOff)
	return exitDone
}

func (t *target) server() *grpc.Server {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(math.MaxInt32), grpc.MaxSendMsgSize(math.MaxInt32),
	}
	if t.settings.maxStreams > 0 {
		options = append(options, grpc.MaxConcurrentStreams(t.settings.maxStreams))
	}
	server := grpc.NewServer(options...)
	ping.RegisterPingServer(server, t)
	healthy := health.NewServer()
	healthy.SetServingStatus(ping.Ping_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(server, healthy)
	reflection.Register(server)
	return server
}

// stop gives the calls in progress this long to end; true if some had not by then.
func (t *target) stop(server *grpc.Server) bool {
	ended := make(chan struct{})
	go func() {
		server.GracefulStop()
		close(ended)
	}()
	select {
	case <-ended:
		return false
	case <-time.After(targetGrace):
		cutOff := t.inProgress.Load() > 0
		server.Stop()
		<-ended
		return cutOff
	}
}

func (t *target) reportEnd(messages *messages, cutOff bool) {
	dropped := t.unkept.Load()
	if t.recorder != nil {
		limit := make(chan struct{})
		time.AfterFunc(targetGrace, func() { close(limit) })
		t.recorder.finish(limit)
		dropped += t.recorder.dropped[0].Load()
	}
	calls, byStatus := t.answered()
	messages.send(targetEndMessage{"end", calls, byStatus, t.malformed.Load(), dropped, cutOff})
}

// answered counts the pings answered so far.
func (t *target) answered() (calls uint64, byStatus map[string]uint64) {
	byStatus = map[string]uint64{}
	for code := range t.byStatus {
		if n := t.byStatus[code].Load(); n > 0 {
			calls += n
			byStatus[statusNames[code]] = n
		}
	}
	return calls, byStatus
}

// Ping answers one ping.
func (t *target) Ping(ctx context.Context, request *ping.PingRequest) (*ping.PingResponse, error) {
	received := time.Now()
	t.begin()
	var traced *record
	if header := metadata.ValueFromIncomingContext(ctx, traceparentHeader); len(header) > 0 {
		traced = t.traced(header[0])
	}
	response := &ping.PingResponse{}
	err := t.answer(ctx, request, response)
	t.end(ctx, received, traced, err)
	if err != nil {
		return nil, err
	}
	return response, nil
}

// PingStream answers the pings of one stream, in order.
func (t *target) PingStream(stream grpc.BidiStreamingServer[ping.PingRequest, ping.PingResponse]) error {
	request, response := &ping.PingRequest{}, &ping.PingResponse{}
	for {
		err := stream.RecvMsg(request)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		received := time.Now()
		t.begin()
		var traced *record
		if len(request.TraceId)+len(request.SpanId) > 0 {
			traced = t.tracedPing(request)
		}
		err = t.answer(stream.Context(), request, response)
		if err == nil {
			err = stream.SendMsg(response)
		}
		t.end(stream.Context(), received, traced, err)
		if err != nil {
			return err
		}
	}
}

// Usage returns what the process has used and done so far.
func (t *target) Usage(context.Context, *ping.UsageRequest) (*ping.UsageResponse, error) {
	used := readUsage()
	calls, _ := t.answered()
	return &ping.UsageResponse{
		Stack:           "go",
		Library:         library,
		CpuNs:           uint64(used.cpuNs),
		ContextSwitches: uint64(used.contextSwitches),
		Calls:           calls,
		PeakInProgress:  uint64(t.peak.Swap(t.inProgress.Load())),
		MaxStreams:      uint64(t.settings.maxStreams),
		Pid:             uint32(os.Getpid()),
	}, nil
}

func (t *target) answer(ctx context.Context, request *ping.PingRequest, response *ping.PingResponse) error {
	bytes, think := t.settings.responseBytes, t.settings.thinkNs
	if request.ResponseBytes != nil {
		bytes = *request.ResponseBytes
	}
	if request.ThinkNs != nil {
		think = *request.ThinkNs
	}
	if bytes > maxResponseBytes {
		return status.Errorf(codes.InvalidArgument, "response_bytes is %d: expected at most %d", bytes, maxResponseBytes)
	}
	if think > uint64(maxThink) {
		return status.Errorf(codes.InvalidArgument, "think_ns is %d: expected at most %d", think, uint64(maxThink))
	}
	if bytes <= uint64(len(t.zeros)) {
		response.Payload = t.zeros[:bytes]
	} else {
		response.Payload = make([]byte, bytes)
	}
	if think == 0 {
		return nil
	}
	return t.thinker.think(ctx, time.Duration(think))
}

func (t *target) begin() {
	now := t.inProgress.Add(1)
	for {
		peak := t.peak.Load()
		if now <= peak || t.peak.CompareAndSwap(peak, now) {
			return
		}
	}
}

func (t *target) end(ctx context.Context, received time.Time, traced *record, err error) {
	code := knownCode(status.Code(err))
	t.byStatus[code].Add(1)
	t.inProgress.Add(-1)
	if traced == nil || t.recorder == nil {
		return
	}
	traced.at, traced.duration, traced.code = received, time.Since(received), uint8(code)
	traced.connection = unknownConnection
	if caller, known := peer.FromContext(ctx); known {
		if numbered, is := caller.Addr.(numberedAddr); is && numbered.id < unknownConnection {
			traced.connection = uint16(numbered.id)
		}
	}
	if !t.recorder.keep(traced) {
		t.unkept.Add(1)
	}
}

// traced begins the record of a call with a traceparent, if it is sampled and records are wanted.
func (t *target) traced(header string) *record {
	traceID, parentID, sampled, ok := parseTraceparent(header)
	if !ok {
		t.malformed.Add(1)
		return nil
	}
	if !sampled || t.recorder == nil {
		return nil
	}
	return &record{traceID: traceID, spanID: randomSpan(), parentID: parentID}
}

// tracedPing does the same for a ping that has the ids in its message.
func (t *target) tracedPing(request *ping.PingRequest) *record {
	traced := &record{spanID: randomSpan(), flags: flagStream}
	complete := len(request.TraceId) == len(traced.traceID) && len(request.SpanId) == len(traced.parentID)
	copy(traced.traceID[:], request.TraceId)
	copy(traced.parentID[:], request.SpanId)
	if !complete || traced.traceID == [16]byte{} || traced.parentID == [8]byte{} {
		t.malformed.Add(1)
		return nil
	}
	return traced
}
