package main

import (
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"time"
)

// Limits of spangap.ping.v1.Ping, as in ping.proto.
const (
	maxResponseBytes = 64 << 20
	maxThink         = time.Minute
)

// maxRequestBytes is how much payload a gRPC message can carry in addition to a request's other fields.
const maxRequestBytes = math.MaxInt32 - 1024

// maxOwnChannels bounds the channels of an open loop whose workers have one each.
const maxOwnChannels = 1024

type recordChoice int

const (
	recordNone recordChoice = iota
	recordSlow
	recordAll
)

type nodelayChoice int

const (
	nodelayDefault nodelayChoice = iota
	nodelayOn
	nodelayOff
)

// clientSettings are the validated flags of a client.
type clientSettings struct {
	target        string
	stream        bool
	channels      channelPlan
	schedule      schedule
	inFlight      int
	threads       int
	requestBytes  int
	responseBytes *uint64 // nil: the target's own setting
	thinkNs       *uint64 // nil: the target's own setting
	nodelay       nodelayChoice
	timeout       time.Duration
	warmup        time.Duration
	duration      time.Duration // 0: until stopped
	calls         uint64        // 0: no limit
	trace         bool
	records       recordChoice
	slow          time.Duration
	recordFile    string
}

// targetSettings are the validated flags of a target.
type targetSettings struct {
	listen        string
	responseBytes uint64
	thinkNs       uint64
	maxStreams    uint32 // 0: the library's own
	threads       int
	nodelay       nodelayChoice
	records       recordChoice
	recordFile    string
}

// channelPlan is the number of channels for the workers.
type channelPlan struct {
	perWorker bool
	pool      int // channels, unless perWorker
}

func (p channelPlan) count(workers int) int {
	if p.perWorker {
		return workers
	}
	return p.pool
}

// flag is one `--name=value` with the parser of its value. Every flag is required.
type flag struct {
	name string
	read func(value string) error
}

// parseFlags parses every flag exactly once, in any order.
func parseFlags(args []string, flags []flag) error {
	seen := make(map[string]bool, len(flags))
	for _, arg := range args {
		name, value, valued := strings.Cut(arg, "=")
		var known *flag
		for i := range flags {
			if "--"+flags[i].name == name {
				known = &flags[i]
			}
		}
		switch {
		case known == nil:
			return fmt.Errorf("unknown flag: found %q", arg)
		case !valued:
			return fmt.Errorf("%s: no value (expected %s=VALUE)", name, name)
		case seen[known.name]:
			return fmt.Errorf("%s: given twice", name)
		}
		seen[known.name] = true
		if err := known.read(value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, f := range flags {
		if !seen[f.name] {
			return fmt.Errorf("--%s: missing", f.name)
		}
	}
	return nil
}

func parseClient(args []string) (*clientSettings, error) {
	s := &clientSettings{}
	err := parseFlags(args, []flag{
		{"stack", choice("go", map[string]func(){"go": func() {}})},
		{"target", address(&s.target, 1)},
		{"call", choice("unary or stream", map[string]func(){
			"unary":  func() { s.stream = false },
			"stream": func() { s.stream = true },
		})},
		{"channels", s.channels.parse},
		{"schedule", s.schedule.parse},
		{"in-flight", count(&s.inFlight, 1, math.MaxInt32)},
		{"threads", count(&s.threads, 1, 1<<16)},
		{"request-bytes", count(&s.requestBytes, 0, maxRequestBytes)},
		{"response-bytes", orTarget(&s.responseBytes)},
		{"think-ns", orTarget(&s.thinkNs)},
		{"nodelay", nodelay(&s.nodelay)},
		{"split-writes", splitWrites},
		{"timeout-ns", duration(&s.timeout, 1)},
		{"warmup-ns", duration(&s.warmup, 0)},
		{"duration-ns", duration(&s.duration, 0)},
		{"calls", number(&s.calls, 0, math.MaxUint64)},
		{"trace", choice("on or off", map[string]func(){
			"on":  func() { s.trace = true },
			"off": func() { s.trace = false },
		})},
		{"records", choice("none, slow or all", map[string]func(){
			"none": func() { s.records = recordNone },
			"slow": func() { s.records = recordSlow },
			"all":  func() { s.records = recordAll },
		})},
		{"slow-ns", duration(&s.slow, 0)},
		{"record-file", func(value string) error { s.recordFile = value; return nil }},
	})
	if err != nil {
		return nil, err
	}
	if s.schedule.open() && s.channels.perWorker && s.inFlight > maxOwnChannels {
		return nil, fmt.Errorf("--channels: a channel for each of %d calls is too many in an open loop (expected --in-flight of at most %d)",
			s.inFlight, maxOwnChannels)
	}
	if s.warmup > math.MaxInt64-s.duration {
		return nil, fmt.Errorf("--duration-ns: together with --warmup-ns over 292 years")
	}
	return s, checkRecordFile(s.records, s.recordFile)
}

func parseTarget(args []string) (*targetSettings, error) {
	s := &targetSettings{}
	var maxStreams uint64
	err := parseFlags(args, []flag{
		{"stack", choice("go", map[string]func(){"go": func() {}})},
		{"listen", address(&s.listen, 0)},
		{"response-bytes", number(&s.responseBytes, 0, maxResponseBytes)},
		{"think-ns", number(&s.thinkNs, 0, uint64(maxThink))},
		{"max-streams", number(&maxStreams, 0, math.MaxUint32)},
		{"threads", count(&s.threads, 1, 1<<16)},
		{"nodelay", nodelay(&s.nodelay)},
		{"records", choice("none or all", map[string]func(){
			"none": func() { s.records = recordNone },
			"all":  func() { s.records = recordAll },
		})},
		{"record-file", func(value string) error { s.recordFile = value; return nil }},
	})
	if err != nil {
		return nil, err
	}
	s.maxStreams = uint32(maxStreams)
	return s, checkRecordFile(s.records, s.recordFile)
}

func checkRecordFile(records recordChoice, file string) error {
	switch {
	case records == recordNone && file != "":
		return fmt.Errorf("--record-file: found %q (expected it empty with --records=none)", file)
	case records != recordNone && file == "":
		return fmt.Errorf("--record-file: empty (expected a file for the records)")
	}
	return nil
}

func (p *channelPlan) parse(value string) error {
	switch value {
	case "shared":
		*p = channelPlan{pool: 1}
	case "per-worker", "distinct":
		*p = channelPlan{perWorker: true}
	case "local-pool":
		return fmt.Errorf("grpc-go has no subchannel pool that a channel could have of its own: use per-worker")
	default:
		channels, isPool := strings.CutPrefix(value, "pool:")
		if !isPool {
			return fmt.Errorf("found %q (expected shared, per-worker, distinct or pool:N)", value)
		}
		return count(&p.pool, 1, 1<<16)(channels)
	}
	return nil
}

func splitWrites(value string) error {
	switch value {
	case "off":
		return nil
	case "on":
		return fmt.Errorf("grpc-go writes a request as it sees fit: only the stack raw can split it")
	}
	return fmt.Errorf("found %q (expected on or off)", value)
}

func choice(expected string, take map[string]func()) func(string) error {
	return func(value string) error {
		chosen, known := take[value]
		if !known {
			return fmt.Errorf("found %q (expected %s)", value, expected)
		}
		chosen()
		return nil
	}
}

func nodelay(to *nodelayChoice) func(string) error {
	return choice("on, off or default", map[string]func(){
		"on":      func() { *to = nodelayOn },
		"off":     func() { *to = nodelayOff },
		"default": func() { *to = nodelayDefault },
	})
}

func number(to *uint64, least, most uint64) func(string) error {
	return func(value string) error {
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil || n < least || n > most {
			return fmt.Errorf("found %q (expected a whole number from %d to %d)", value, least, most)
		}
		*to = n
		return nil
	}
}

func count(to *int, least, most int) func(string) error {
	return func(value string) error {
		var n uint64
		if err := number(&n, uint64(least), uint64(most))(value); err != nil {
			return err
		}
		*to = int(n)
		return nil
	}
}

func duration(to *time.Duration, least uint64) func(string) error {
	return func(value string) error {
		var ns uint64
		if err := number(&ns, least, math.MaxInt64)(value); err != nil {
			return err
		}
		*to = time.Duration(ns)
		return nil
	}
}

func orTarget(to **uint64) func(string) error {
	return func(value string) error {
		if value == "target" {
			*to = nil
			return nil
		}
		var n uint64
		if number(&n, 0, math.MaxUint64)(value) != nil {
			return fmt.Errorf("found %q (expected target or a whole number up to %d)", value, uint64(math.MaxUint64))
		}
		*to = &n
		return nil
	}
}

func address(to *string, leastPort uint64) func(string) error {
	return func(value string) error {
		host, port, err := net.SplitHostPort(value)
		var n uint64
		if err != nil || (host == "" && leastPort > 0) || number(&n, leastPort, math.MaxUint16)(port) != nil {
			return fmt.Errorf("found %q (expected HOST:PORT)", value)
		}
		*to = value
		return nil
	}
}
