package main

import (
	"runtime"
	"sync"
	"time"
)

// openLoop begins calls when they are due, whatever became of those before.
type openLoop struct {
	load    *load
	tallies []*tally
	begun   begun
	limit   *callLimit
	stopped chan struct{}
	once    sync.Once

	lock    sync.Mutex
	free    []*openWorker // the last to be free is the next to call: its memory is warm
	workers int
	over    bool // no call comes any more
	running sync.WaitGroup
}

// openWorker is a goroutine that makes the call it is handed, then waits for the next.
type openWorker struct {
	caller *caller
	calls  chan dueCall // holds one: the keeper of the time never waits for a worker
}

type dueCall struct {
	due   time.Duration // after the start
	phase phase
}

func newOpenLoop(l *load, tallies []*tally, limit *callLimit) *openLoop {
	return &openLoop{load: l, tallies: tallies, limit: limit, stopped: make(chan struct{})}
}

func (o *openLoop) stop() { o.once.Do(func() { close(o.stopped) }) }

func (o *openLoop) run() {
	o.keepTime()
	o.lock.Lock()
	o.over = true
	for _, worker := range o.free {
		close(worker.calls)
	}
	o.lock.Unlock()
	o.running.Wait()
}

func (o *openLoop) keepTime() {
	// The thread has a timer slack of its own; it ends with this goroutine's lock on it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	alarm, err := newAlarm(o.load.times.start)
	if err != nil {
		complain(err)
	}
	for n := uint64(0); ; n++ {
		due, fits := o.load.settings.schedule.due(n)
		if !fits {
			<-o.stopped
			return
		}
		phase := o.load.times.phaseAt(due)
		if phase == over || !alarm.wait(due, o.stopped) {
			return
		}
		if phase == measured && !o.limit.take() {
			return
		}
		o.begin(dueCall{due, phase})
	}
}

// begin hands a call to a worker that is free, or counts it as skipped when as many as allowed are under way.
func (o *openLoop) begin(call dueCall) {
	o.begun.due[call.phase].Add(1)
	o.lock.Lock()
	var worker *openWorker
	if last := len(o.free) - 1; last >= 0 {
		worker = o.free[last]
		o.free = o.free[:last]
	} else if o.workers < o.load.settings.inFlight {
		worker = o.newWorker()
	}
	o.lock.Unlock()
	if worker == nil {
		o.begun.skipped[call.phase].Add(1)
		return
	}
	worker.calls <- call
}

func (o *openLoop) newWorker() *openWorker {
	worker := &openWorker{
		caller: newCaller(o.load, o.workers, o.tallies[o.workers%len(o.tallies)]),
		calls:  make(chan dueCall, 1),
	}
	o.workers++
	o.running.Add(1)
	go func() {
		defer o.running.Done()
		defer worker.caller.close()
		o.work(worker)
	}()
	return worker
}

func (o *openLoop) work(w *openWorker) {
	var result outcome
	for call := range w.calls {
		sent := time.Now()
		result.phase = call.phase
		result.lateness = sent.Sub(o.load.times.start) - call.due
		w.caller.call(&result, sent)
		o.lock.Lock()
		over := o.over
		if !over {
			o.free = append(o.free, w)
		}
		o.lock.Unlock()
		if over {
			return
		}
	}
}
