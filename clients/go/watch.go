package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// fired replaces a deadline that has passed, and rules out all later ones.
const fired = -1

// watch ends a worker's calls that take too long. A context with a deadline per call would cost several per cent of a
// ping, and an allocation of ours; this one lasts until it has failed a call, and costs a call two atomic operations.
// Its timer never runs past the deadline of the current call; it then checks, and is set again.
type watch struct {
	context.Context
	cancel   context.CancelFunc
	timer    *time.Timer
	start    time.Time
	timeout  time.Duration
	deadline atomic.Int64 // of the call under way, ns after the start; 0: none; or fired
}

func newWatch(parent context.Context, start time.Time, timeout time.Duration) *watch {
	w := &watch{start: start, timeout: timeout}
	w.Context, w.cancel = context.WithCancel(parent)
	// The timer's function waits until the field is set.
	ready := make(chan struct{})
	w.timer = time.AfterFunc(timeout, func() { <-ready; w.look() })
	close(ready)
	return w
}

// begin watches over a call that is being sent.
func (w *watch) begin(sent time.Time) {
	// A timeout that the type cannot represent never comes.
	if deadline := sent.Sub(w.start) + w.timeout; deadline > 0 {
		w.deadline.Store(int64(deadline))
	}
}

// end is true if the watch has ended the call; the watch is then used up.
func (w *watch) end() bool { return w.deadline.Swap(0) == fired }

func (w *watch) look() {
	for {
		deadline := w.deadline.Load()
		if deadline == fired {
			return
		}
		next := w.timeout
		if deadline > 0 {
			next = time.Duration(deadline) - time.Since(w.start)
		}
		if next > 0 {
			w.timer.Reset(next)
			return
		}
		// A call that has just ended, or the next one, is not affected.
		if w.deadline.CompareAndSwap(deadline, fired) {
			w.cancel()
			return
		}
	}
}

// release frees the context and everything below it.
func (w *watch) release() {
	// A timer that is being set again ends at its next check.
	w.deadline.Store(fired)
	w.timer.Stop()
	w.cancel()
}

// tooLate is the error of a call that the watch ended.
func (w *watch) tooLate() error {
	return status.Error(codes.DeadlineExceeded, fmt.Sprintf("no response within %v", w.timeout))
}
