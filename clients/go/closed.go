package main

import (
	"sync"
	"sync/atomic"
	"time"
)

// hammerPause follows any failure that came faster than this, so that a worker does not hammer a dead target.
const hammerPause = time.Millisecond

// closedLoop keeps a call in progress in each worker.
type closedLoop struct {
	load    *load
	callers []*caller
	begun   []begun // by worker
	limit   *callLimit
	stopped atomic.Bool
}

func (c *closedLoop) run() error {
	var workers sync.WaitGroup
	for i := range c.callers {
		workers.Add(1)
		go func() {
			defer workers.Done()
			c.work(c.callers[i], &c.begun[i])
		}()
	}
	workers.Wait()
	return nil
}

func (c *closedLoop) stop() { c.stopped.Store(true) }

func (c *closedLoop) work(caller *caller, begun *begun) {
	defer caller.close()
	var o outcome
	for !c.stopped.Load() {
		sent := time.Now()
		o.phase = c.load.times.phaseAt(sent.Sub(c.load.times.start))
		if o.phase == over || (o.phase == measured && !c.limit.take()) {
			return
		}
		begun.due[o.phase].Add(1)
		caller.call(&o, sent)
		if o.code != 0 && o.fromSend < hammerPause {
			time.Sleep(hammerPause)
		}
	}
}

// callLimit ends the measured phase after this many calls.
type callLimit struct {
	calls   uint64 // 0: no limit
	taken   atomic.Uint64
	reached chan struct{} // closed when the last call was taken
}

// take returns false if no calls are left.
func (l *callLimit) take() bool {
	if l.calls == 0 {
		return true
	}
	n := l.taken.Add(1)
	if n == l.calls {
		close(l.reached)
	}
	return n <= l.calls
}
