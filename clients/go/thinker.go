package main

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/status"
)

// thinker wakes calls after their think time, with the precision of the kernel's timers and without a thread per call:
// one goroutine waits for the earliest of them.
type thinker struct {
	alarm *alarm
	lock  sync.Mutex
	calls thoughts
	spare sync.Pool
}

// thought is a waiting call.
type thought struct {
	until time.Time
	woken chan struct{} // holds one
	at    int           // in the heap; negative: no longer there
}

func newThinker() (*thinker, error) {
	alarm, err := newAlarm()
	if err != nil {
		return nil, err
	}
	t := &thinker{alarm: alarm}
	t.spare.New = func() any { return &thought{woken: make(chan struct{}, 1)} }
	return t, nil
}

// run wakes calls until close.
func (t *thinker) run() error {
	defer t.alarm.close()
	for {
		if rang, err := t.alarm.wait(); !rang {
			return err
		}
		t.lock.Lock()
		err := t.wake(time.Now())
		t.lock.Unlock()
		if err != nil {
			return err
		}
	}
}

func (t *thinker) close() { t.alarm.stop() }

// wake ends the waits that are over and sets the alarm for the next one.
func (t *thinker) wake(now time.Time) error {
	for len(t.calls) > 0 {
		if left := t.calls[0].until.Sub(now); left > 0 {
			return t.alarm.set(left)
		}
		heap.Pop(&t.calls).(*thought).woken <- struct{}{}
	}
	return nil
}

// think waits for this long, or until the call is cancelled.
func (t *thinker) think(ctx context.Context, d time.Duration) error {
	call := t.spare.Get().(*thought)
	call.until = time.Now().Add(d)
	t.lock.Lock()
	heap.Push(&t.calls, call)
	var err error
	if call.at == 0 {
		err = t.alarm.set(d)
	}
	t.lock.Unlock()
	if err != nil {
		return status.FromContextError(err).Err()
	}
	select {
	case <-call.woken:
		t.spare.Put(call)
		return nil
	case <-ctx.Done():
		t.lock.Lock()
		if call.at >= 0 {
			heap.Remove(&t.calls, call.at)
		}
		t.lock.Unlock()
		return status.FromContextError(ctx.Err()).Err()
	}
}

// thoughts is a heap with the earliest first.
type thoughts []*thought

func (t thoughts) Len() int           { return len(t) }
func (t thoughts) Less(i, j int) bool { return t[i].until.Before(t[j].until) }

func (t thoughts) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].at, t[j].at = i, j
}

// Push is part of heap.Interface.
func (t *thoughts) Push(x any) {
	call := x.(*thought)
	call.at = len(*t)
	*t = append(*t, call)
}

// Pop is part of heap.Interface.
func (t *thoughts) Pop() any {
	last := len(*t) - 1
	call := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	call.at = -1
	return call
}
