package main

import (
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
)

// outcome is the result of one call.
type outcome struct {
	phase    phase
	code     codes.Code
	reason   string        // of a failure, in grpc-go's words
	lateness time.Duration // from due to sent; 0 in a closed loop
	fromSend time.Duration // from sent to done
	slow     bool
	unkept   bool // its record found the queue full
}

type failures struct {
	count uint64
	last  string
}

// counts are the results of one phase's calls over some time.
type counts struct {
	ok, ended, slow, recordsDropped uint64
	errors                          [len(statusNames)]failures
	latency, fromSend, lateness     histogram
}

func (c *counts) add(o *outcome, open bool) {
	c.ended++
	if o.slow {
		c.slow++
	}
	if o.unkept {
		c.recordsDropped++
	}
	if open {
		c.lateness.add(uint64(o.lateness))
	}
	if o.code != codes.OK {
		failed := &c.errors[o.code]
		failed.count++
		failed.last = o.reason
		return
	}
	c.ok++
	c.fromSend.add(uint64(o.fromSend))
	if open {
		c.latency.add(uint64(o.lateness + o.fromSend))
	}
}

// take adds the content of other and empties it.
func (c *counts) take(other *counts) {
	c.ok += other.ok
	c.ended += other.ended
	c.slow += other.slow
	c.recordsDropped += other.recordsDropped
	for i := range other.errors {
		from, to := &other.errors[i], &c.errors[i]
		if from.count > 0 {
			to.count += from.count
			to.last = from.last
		}
		*from = failures{}
	}
	c.latency.take(&other.latency)
	c.fromSend.take(&other.fromSend)
	c.lateness.take(&other.lateness)
	other.ok, other.ended, other.slow, other.recordsDropped = 0, 0, 0, 0
}

func (c *counts) clear() {
	c.ok, c.ended, c.slow, c.recordsDropped = 0, 0, 0, 0
	c.errors = [len(statusNames)]failures{}
	c.latency.clear()
	c.fromSend.clear()
	c.lateness.clear()
}

// tally counts the ended calls of a few workers. Its lock is held for nanoseconds; the report swaps the counts for
// empty ones and adds them up elsewhere.
type tally struct {
	open bool
	lock sync.Mutex
	now  *[phases]counts
	idle *[phases]counts // empty; only the report touches it without the lock
	_    [64]byte        // no other tally in the same cache line
}

func newTally(open bool) *tally {
	return &tally{open: open, now: new([phases]counts), idle: new([phases]counts)}
}

func (t *tally) add(o *outcome) {
	t.lock.Lock()
	t.now[o.phase].add(o, t.open)
	t.lock.Unlock()
}

// drain moves everything counted so far to the sums.
func (t *tally) drain(sums *[phases]counts) {
	t.lock.Lock()
	t.now, t.idle = t.idle, t.now
	t.lock.Unlock()
	for i := range sums {
		sums[i].take(&t.idle[i])
	}
}

// begun counts the calls that began or were skipped; only one thread at a time adds to it.
type begun struct {
	due     [phases]atomic.Uint64 // sent or skipped
	skipped [phases]atomic.Uint64
	_       [64]byte
}
