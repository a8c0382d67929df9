package main

import (
	"context"
	"runtime"
	"time"
)

// stopGrace is how long calls in progress may continue after the life line has ended.
const stopGrace = time.Second

// loop is a way to begin calls.
type loop interface {
	// run begins calls until the measured phase is over or stop is called, and returns when all have ended. The error says
	// why no more could be begun.
	run() error
	stop()
}

// runClient is the life of a client, from its connections to its exit code.
func runClient(s *clientSettings, life *life, messages *messages) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-life.over:
			// Connections that are still being made are no longer needed; the session gives calls their grace period.
			select {
			case <-life.begin:
			default:
				cancel()
			}
		case <-ctx.Done():
		}
	}()
	stoppedEarly := func() int {
		messages.send(clientEndMessage{"end", "stopped"})
		return exitDone
	}

	var recorder *recorder
	var err error
	if s.records != recordNone {
		recorder, err = openRecorder(s.recordFile)
	}
	var channels []*channel
	if err == nil {
		channels, err = openChannels(ctx, s, messages)
	}
	if err != nil {
		if ctx.Err() != nil {
			return stoppedEarly()
		}
		messages.failed(err.Error())
		return exitFailed
	}
	messages.send(readyMessage{"ready", "go", library, len(channels)})

	select {
	case <-life.begin:
	case <-life.over:
		select {
		case <-life.begin:
		default:
			return stoppedEarly()
		}
	}
	start := time.Now()
	session, err := newSession(s, &load{
		settings: s,
		times:    newTimetable(start, s),
		calls:    ctx,
		channels: channels,
		payload:  make([]byte, s.requestBytes),
		recorder: recorder,
	}, messages)
	if err != nil {
		messages.failed(err.Error())
		return exitFailed
	}
	reason := session.run(life, cancel)
	messages.send(clientEndMessage{"end", reason})
	for _, channel := range channels {
		_ = channel.Close()
	}
	return exitDone
}

// tallyCount is large enough to mostly separate concurrent workers, and small enough to add up quickly.
func tallyCount(workers int) int {
	return min(workers, 4*runtime.GOMAXPROCS(0))
}
