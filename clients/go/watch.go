package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// fired stands in place of a deadline that came, and of all that could come after.
const fired = -1

// watch ends a worker's calls that take too long. A context with a deadline for each call would cost several per
// cent of a ping, and an allocation of ours; this one lasts until a call has failed by it, and a call costs two
// atomic operations. Its timer never runs later than the deadline of the call under way, looks, and is set anew.
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

// begin watches over a call that is sent now.
func (w *watch) begin(sent time.Time) {
	// A timeout beyond what the type holds never comes.
	if deadline := sent.Sub(w.start) + w.timeout; deadline > 0 {
		w.deadline.Store(int64(deadline))
	}
}

// end is true when the call was ended by the watch, which is then of no more use.
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
		// A call that has just ended, or the next one, is left alone.
		if w.deadline.CompareAndSwap(deadline, fired) {
			w.cancel()
			return
		}
	}
}

// release lets go of the context and everything below it.
func (w *watch) release() {
	// A timer that is just being set anew ends at its next look.
	w.deadline.Store(fired)
	w.timer.Stop()
	w.cancel()
}

// tooLate is why a call failed that the watch ended.
func (w *watch) tooLate() error {
	return status.Error(codes.DeadlineExceeded, fmt.Sprintf("no response within %v", w.timeout))
}
