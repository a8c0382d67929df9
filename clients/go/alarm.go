package main

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// coarse is how long before its end a wait changes from Go's timers, which a stop can interrupt and which are up to
// 1 ms late, to the kernel's.
const coarse = 20 * time.Millisecond

// alarm waits for points in time with the precision of the kernel's timers. It belongs to one locked thread.
type alarm struct {
	start     time.Time
	monotonic int64 // CLOCK_MONOTONIC at start, ns
}

// newAlarm sets the timer slack of the calling thread to 1 ns.
func newAlarm(start time.Time) (*alarm, error) {
	a := &alarm{start: start}
	tightest := time.Duration(1<<63 - 1)
	for range 16 {
		var now unix.Timespec
		before := time.Since(start)
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			return nil, fmt.Errorf("cannot read CLOCK_MONOTONIC: %w", err)
		}
		after := time.Since(start)
		if after-before < tightest {
			tightest = after - before
			a.monotonic = now.Nano() - int64(before+(after-before)/2)
		}
	}
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return a, fmt.Errorf("cannot set the timer slack, so that calls are sent later: %w", err)
	}
	return a, nil
}

// wait returns at a point in time after the start, at once when it is past; false when stop came first.
func (a *alarm) wait(until time.Duration, stop <-chan struct{}) bool {
	for {
		left := until - time.Since(a.start)
		if left <= 0 {
			select {
			case <-stop:
				return false
			default:
				return true
			}
		}
		if left > coarse {
			timer := time.NewTimer(left - coarse/2)
			select {
			case <-timer.C:
			case <-stop:
				timer.Stop()
				return false
			}
			continue
		}
		at := unix.NsecToTimespec(a.monotonic + int64(until))
		// An interrupted sleep goes on: the time that is left is computed anew.
		if err := unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &at, nil); err != nil && err != unix.EINTR {
			runtime.Gosched()
		}
	}
}
