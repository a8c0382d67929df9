package main

import (
	"encoding/json"
	"io"
	"strconv"
	"sync"
	"time"
)

// messages are the lines on standard output. When their reader is gone, the life line ends too, so a failed write
// changes nothing.
type messages struct {
	lock   sync.Mutex
	output io.Writer
}

func newMessages(output io.Writer) *messages { return &messages{output: output} }

func (m *messages) line(b []byte) {
	m.lock.Lock()
	defer m.lock.Unlock()
	_, _ = m.output.Write(append(b, '\n'))
}

// send writes one message, whose fields must all have JSON types.
func (m *messages) send(message any) {
	b, err := json.Marshal(message)
	if err != nil {
		complain(err)
		return
	}
	m.line(b)
}

type failedMessage struct {
	Event string `json:"event"`
	Error string `json:"error"`
}

func (m *messages) failed(reason string) { m.send(failedMessage{"failed", reason}) }

type readyMessage struct {
	Event    string `json:"event"`
	Stack    string `json:"stack"`
	Library  string `json:"library"`
	Channels int    `json:"channels"`
}

type connectionMessage struct {
	Event   string `json:"event"`
	ID      uint32 `json:"id"`
	Channel int    `json:"channel"`
	Local   string `json:"local"`
	Peer    string `json:"peer"`
}

type phaseMessage struct {
	Event  string `json:"event"`
	Phase  string `json:"phase"`
	UnixNs int64  `json:"unix_ns"`
}

func (m *messages) phase(name string, at time.Time) {
	m.send(phaseMessage{"phase", name, at.UnixNano()})
}

type clientEndMessage struct {
	Event  string `json:"event"`
	Reason string `json:"reason"`
}

type listeningMessage struct {
	Event   string `json:"event"`
	Address string `json:"address"`
	Library string `json:"library"`
}

type targetEndMessage struct {
	Event                string            `json:"event"`
	Calls                uint64            `json:"calls"`
	ByStatus             map[string]uint64 `json:"by_status"`
	MalformedTraceparent uint64            `json:"malformed_traceparent"`
	RecordsDropped       uint64            `json:"records_dropped"`
	CutOff               bool              `json:"cut_off"`
}

// interval is what happened in one phase since that phase's previous interval.
type interval struct {
	phase           phase
	at              time.Time
	duration        time.Duration
	due, skipped    uint64
	counts          *counts
	inFlight        uint64
	cpuNs           int64
	contextSwitches int64
}

// appendJSON avoids reflection over thousands of buckets: it runs next to the calls being measured.
func (i *interval) appendJSON(b []byte) []byte {
	field := func(name string, value uint64) {
		b = append(b, `,"`...)
		b = append(b, name...)
		b = append(b, `":`...)
		b = strconv.AppendUint(b, value, 10)
	}
	b = append(b, `{"event":"interval","phase":"`...)
	b = append(b, phaseNames[i.phase]...)
	b = append(b, '"')
	field("at_unix_ns", uint64(i.at.UnixNano()))
	field("duration_ns", uint64(i.duration))
	field("due", i.due)
	field("skipped", i.skipped)
	field("ok", i.counts.ok)
	b = append(b, `,"errors":`...)
	b = appendErrors(b, i.counts)
	field("slow", i.counts.slow)
	b = append(b, `,"latency":`...)
	b = i.counts.latency.appendJSON(b)
	b = append(b, `,"from_send":`...)
	b = i.counts.fromSend.appendJSON(b)
	b = append(b, `,"lateness":`...)
	b = i.counts.lateness.appendJSON(b)
	field("in_flight", i.inFlight)
	field("cpu_ns", uint64(i.cpuNs))
	field("context_switches", uint64(i.contextSwitches))
	field("records_dropped", i.counts.recordsDropped)
	return append(b, '}')
}

func appendErrors(b []byte, c *counts) []byte {
	b = append(b, '{')
	first := true
	for code := range c.errors {
		failed := &c.errors[code]
		if failed.count == 0 {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, '"')
		b = append(b, statusNames[code]...)
		b = append(b, `":{"count":`...)
		b = strconv.AppendUint(b, failed.count, 10)
		b = append(b, `,"last":`...)
		reason, err := json.Marshal(failed.last)
		if err != nil {
			reason = []byte(`""`)
		}
		b = append(b, reason...)
		b = append(b, '}')
	}
	return append(b, '}')
}
