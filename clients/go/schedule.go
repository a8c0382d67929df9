package main

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
	"time"
)

// schedule says when calls are due. The zero value is the closed loop, in which no call is ever due.
type schedule struct {
	calls, ns uint64 // so many calls in so many nanoseconds
}

func (s *schedule) parse(value string) error {
	if value == "closed" {
		*s = schedule{}
		return nil
	}
	calls, ns, _ := strings.Cut(value, "/")
	if number(&s.calls, 1, math.MaxUint64)(calls) != nil || number(&s.ns, 1, math.MaxUint64)(ns) != nil {
		return fmt.Errorf("found %q (expected closed or CALLS/NS)", value)
	}
	return nil
}

func (s *schedule) open() bool { return s.calls > 0 }

// due is when call n is due after the start; false if that exceeds a Duration.
func (s *schedule) due(n uint64) (time.Duration, bool) {
	high, low := bits.Mul64(n, s.ns)
	if high >= s.calls {
		return 0, false
	}
	ns, _ := bits.Div64(high, low, s.calls)
	return time.Duration(ns), ns <= math.MaxInt64
}

// phase of a call: that in which it was due (open loop) or sent (closed loop).
type phase int

const (
	warmup phase = iota
	measured
	over
)

const phases = 2

var phaseNames = [phases]string{"warmup", "measured"}

// timetable is when the phases end.
type timetable struct {
	start       time.Time
	warmupEnd   time.Duration // after the start
	measuredEnd time.Duration // after the start; the largest Duration: until stopped
}

func newTimetable(start time.Time, s *clientSettings) timetable {
	end := time.Duration(math.MaxInt64)
	if s.duration > 0 {
		end = s.warmup + s.duration
	}
	return timetable{start: start, warmupEnd: s.warmup, measuredEnd: end}
}

func (t *timetable) phaseAt(afterStart time.Duration) phase {
	switch {
	case afterStart < t.warmupEnd:
		return warmup
	case afterStart < t.measuredEnd:
		return measured
	}
	return over
}
