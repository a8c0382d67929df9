package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm waits for points in time with the precision of the kernel's timers: a timerfd, which has no slack, in Go's
// poller. Go's own timers are rounded up to 1 ms when nothing else runs. A thread in clock_nanosleep would have to get
// a processor back from Go before it could pass a call on, and with --threads=1 the call would wait until that thread
// had lost it again; here whichever thread polls runs the waiter at once. One goroutine waits at a time.
type alarm struct {
	descriptor int // of timer; File.Fd would make it block
	timer      *os.File
	expired    [8]byte
}

func newAlarm() (*alarm, error) {
	descriptor, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot create a timer: %w", err)
	}
	return &alarm{descriptor: descriptor, timer: os.NewFile(uintptr(descriptor), "timerfd")}, nil
}

// set makes the alarm ring after this time, which must be positive, instead of at the time set before.
func (a *alarm) set(left time.Duration) error {
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(left))}
	if err := unix.TimerfdSettime(a.descriptor, 0, &at, nil); err != nil {
		return fmt.Errorf("cannot set a timer: %w", err)
	}
	return nil
}

// wait returns when the alarm rings; false if it was stopped.
func (a *alarm) wait() (bool, error) {
	_, err := a.timer.Read(a.expired[:])
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("cannot wait for a timer: %w", err)
	}
	return true, nil
}

// stop ends the current wait and all later ones. Any goroutine may call it.
func (a *alarm) stop() {
	// Fails only if the file is closed.
	_ = a.timer.SetReadDeadline(time.Unix(1, 0))
}

func (a *alarm) close() { _ = a.timer.Close() }
