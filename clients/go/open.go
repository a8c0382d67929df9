package main

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// openLoop begins calls when they are due, whatever became of earlier ones.
type openLoop struct {
	load    *load
	tallies []*tally
	begun   begun
	limit   *callLimit
	alarm   *alarm
	stopped atomic.Int64 // after the start, in ns; 0: not yet

	lock    sync.Mutex
	free    []*openWorker // the last to be free is the next to call: its memory is warm
	workers int
	over    bool // no call comes any more
	running sync.WaitGroup
}

// openWorker is a goroutine that makes the call it is given, then waits for the next one.
type openWorker struct {
	caller *caller
	calls  chan dueCall // holds one: the keeper of the time never waits for a worker
}

type dueCall struct {
	due   time.Duration // after the start
	phase phase
}

func newOpenLoop(l *load, tallies []*tally, limit *callLimit) (*openLoop, error) {
	alarm, err := newAlarm()
	return &openLoop{load: l, tallies: tallies, limit: limit, alarm: alarm}, err
}

func (o *openLoop) stop() {
	o.stopped.Store(int64(time.Since(o.load.times.start)))
	o.alarm.stop()
}

func (o *openLoop) run() error {
	err := o.keepTime()
	o.lock.Lock()
	o.over = true
	for _, worker := range o.free {
		close(worker.calls)
	}
	o.lock.Unlock()
	o.running.Wait()
	return err
}

func (o *openLoop) keepTime() error {
	defer o.alarm.close()
	for n := uint64(0); ; n++ {
		due, fits := o.load.settings.schedule.due(n)
		if !fits {
			due = math.MaxInt64
		}
		phase := o.load.times.phaseAt(due)
		if phase == over {
			return nil
		}
		for left := due - time.Since(o.load.times.start); left > 0; left = due - time.Since(o.load.times.start) {
			if err := o.alarm.set(left); err != nil {
				return err
			}
			rang, err := o.alarm.wait()
			if err != nil {
				return err
			}
			if !rang {
				break
			}
		}
		// A call that was due before the end begins, however late this is.
		if at := time.Duration(o.stopped.Load()); at > 0 && due >= at {
			return nil
		}
		if phase == measured && !o.limit.take() {
			return nil
		}
		o.begin(dueCall{due, phase})
	}
}

// begin gives a call to a free worker, or counts it as skipped if the permitted number is in progress.
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
