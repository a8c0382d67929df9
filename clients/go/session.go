package main

import (
	"context"
	"time"
)

// session reports on a run while its loop makes the calls.
type session struct {
	load     *load
	messages *messages
	loop     loop
	limit    *callLimit
	tallies  []*tally
	begun    []*begun

	news    [phases]counts // ended and not reported yet
	seen    [phases]beginnings
	told    [phases]beginnings
	ended   uint64 // calls of both phases that were reported
	current phase
	covered time.Duration // after the start: what the intervals have covered
	usage   usage         // at that moment
	line    []byte
}

// beginnings are the number of calls that came due, and of those that were skipped.
type beginnings struct{ due, skipped uint64 }

func newSession(s *clientSettings, l *load, messages *messages) (*session, error) {
	limit := &callLimit{calls: s.calls, reached: make(chan struct{})}
	session := &session{load: l, messages: messages, limit: limit}
	for range tallyCount(s.inFlight) {
		session.tallies = append(session.tallies, newTally(s.schedule.open()))
	}
	if s.schedule.open() {
		open, err := newOpenLoop(l, session.tallies, limit)
		session.loop, session.begun = open, []*begun{&open.begun}
		return session, err
	}
	closed := &closedLoop{load: l, limit: limit, begun: make([]begun, s.inFlight)}
	for i := range s.inFlight {
		closed.callers = append(closed.callers, newCaller(l, i, session.tallies[i%len(session.tallies)]))
		session.begun = append(session.begun, &closed.begun[i])
	}
	session.loop = closed
	return session, nil
}

// run makes the run and returns why it ended. cancel ends the calls in progress.
func (s *session) run(life *life, cancel context.CancelFunc) string {
	times := &s.load.times
	s.usage = readUsage()
	s.current = times.phaseAt(0)
	s.messages.phase(phaseNames[s.current], times.start)
	loopEnded := make(chan struct{})
	go func() {
		defer close(loopEnded)
		if err := s.loop.run(); err != nil {
			complain(err)
		}
	}()

	stopped := s.cover(life)
	s.loop.stop()
	s.messages.phase("drain", times.start.Add(s.covered))
	gone := s.drain(life, loopEnded, cancel)
	s.messages.phase("drained", time.Now())
	if s.load.recorder != nil {
		s.load.recorder.finish(gone)
		for i := range s.news {
			s.news[i].recordsDropped += s.load.recorder.dropped[i].Load()
		}
	}
	s.tellNews()
	if stopped {
		return "stopped"
	}
	return "done"
}

// cover reports the phases during their course; true if the life line ended first.
func (s *session) cover(life *life) bool {
	times := &s.load.times
	phaseBegan := time.Duration(0)
	for {
		phaseEnd := times.measuredEnd
		if s.current == warmup {
			phaseEnd = times.warmupEnd
		}
		elapsed := s.covered - phaseBegan
		next := min(phaseEnd, phaseBegan+elapsed.Truncate(time.Second)+time.Second)
		timer := time.NewTimer(next - time.Since(times.start))
		select {
		case <-timer.C:
			s.tell(next)
			if next < phaseEnd {
				continue
			}
			if s.current == measured {
				return false
			}
			s.current, phaseBegan = measured, next
			s.messages.phase(phaseNames[measured], times.start.Add(next))
		case <-s.limit.reached:
			s.tell(min(time.Since(times.start), phaseEnd))
			return false
		case <-life.over:
			s.tell(min(time.Since(times.start), phaseEnd))
			return true
		}
		timer.Stop()
	}
}

// drain waits for the calls in progress. The channel that it returns is closed once nobody waits for the result any
// more.
func (s *session) drain(life *life, loopEnded <-chan struct{}, cancel context.CancelFunc) <-chan struct{} {
	gone := make(chan struct{})
	go func() {
		<-life.over
		time.Sleep(stopGrace)
		cancel()
		close(gone)
	}()
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for {
		select {
		case <-loopEnded:
			return gone
		case <-ticks.C:
			s.tellNews()
		}
	}
}

// tell reports the current phase up to a point in time after the start, and the other phase if it has news.
func (s *session) tell(until time.Duration) {
	inFlight := s.collect()
	used := readUsage()
	s.send(&interval{
		phase:           s.current,
		at:              s.load.times.start.Add(until),
		duration:        until - s.covered,
		inFlight:        inFlight,
		cpuNs:           used.cpuNs - s.usage.cpuNs,
		contextSwitches: used.contextSwitches - s.usage.contextSwitches,
	})
	s.covered, s.usage = until, used
	s.sendNews(inFlight)
}

// tellNews reports calls that ended after their phase.
func (s *session) tellNews() { s.sendNews(s.collect()) }

func (s *session) sendNews(inFlight uint64) {
	for i := range s.news {
		due, skipped := s.seen[i].due, s.seen[i].skipped
		news := &s.news[i]
		if news.ended+news.recordsDropped > 0 || due > s.told[i].due || skipped > s.told[i].skipped {
			s.send(&interval{phase: phase(i), at: time.Now(), inFlight: inFlight})
		}
	}
}

// send completes an interval with what happened since its phase's last one.
func (s *session) send(i *interval) {
	told := &s.told[i.phase]
	due, skipped := s.seen[i.phase].due, s.seen[i.phase].skipped
	i.due, i.skipped, i.counts = due-told.due, skipped-told.skipped, &s.news[i.phase]
	s.line = i.appendJSON(s.line[:0])
	s.messages.line(s.line)
	told.due, told.skipped = due, skipped
	s.ended += i.counts.ended
	i.counts.clear()
}

// collect brings the news together and returns how many calls are in progress. It reads the ended calls first, so that
// no call ends before it began.
func (s *session) collect() uint64 {
	for _, tally := range s.tallies {
		tally.drain(&s.news)
	}
	inFlight := -s.ended
	for i := range s.news {
		inFlight -= s.news[i].ended
		s.seen[i].skipped, s.seen[i].due = 0, 0
		for _, b := range s.begun {
			skipped := b.skipped[i].Load()
			s.seen[i].skipped += skipped
			s.seen[i].due += b.due[i].Load()
		}
		inFlight += s.seen[i].due - s.seen[i].skipped
	}
	return inFlight
}
