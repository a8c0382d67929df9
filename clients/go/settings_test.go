package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

var clientFlags = []string{
	"--stack=go", "--target=10.0.0.1:50051", "--call=stream", "--channels=pool:3", "--schedule=1000/1000000000",
	"--in-flight=64", "--threads=2", "--request-bytes=10", "--response-bytes=target", "--think-ns=1000",
	"--nodelay=off", "--split-writes=off", "--timeout-ns=5", "--warmup-ns=0", "--duration-ns=7", "--calls=8",
	"--trace=on", "--records=slow", "--slow-ns=9", "--record-file=/tmp/x=y",
}

var targetFlags = []string{
	"--stack=go", "--listen=127.0.0.1:0", "--response-bytes=1", "--think-ns=2", "--max-streams=3", "--threads=4",
	"--nodelay=default", "--records=none", "--record-file=",
}

// with replaces the flag of the same name, or adds one.
func with(flags []string, changed string) []string {
	name, _, _ := strings.Cut(changed, "=")
	flags = slices.DeleteFunc(slices.Clone(flags), func(f string) bool { return strings.HasPrefix(f, name+"=") })
	return append(flags, changed)
}

func TestClientFlags(t *testing.T) {
	s, err := parseClient(clientFlags)
	if err != nil {
		t.Fatal(err)
	}
	if s.target != "10.0.0.1:50051" || !s.stream || s.channels != (channelPlan{pool: 3}) || s.schedule != (schedule{1000, 1e9}) ||
		s.inFlight != 64 || s.threads != 2 || s.requestBytes != 10 || s.responseBytes != nil || *s.thinkNs != 1000 ||
		s.nodelay != nodelayOff || s.timeout != 5 || s.warmup != 0 || s.duration != 7 || s.calls != 8 || !s.trace ||
		s.records != recordSlow || s.slow != 9 || s.recordFile != "/tmp/x=y" {
		t.Fatalf("found %+v", s)
	}
}

func TestTargetFlags(t *testing.T) {
	s, err := parseTarget(targetFlags)
	if err != nil {
		t.Fatal(err)
	}
	if s.listen != "127.0.0.1:0" || s.responseBytes != 1 || s.thinkNs != 2 || s.maxStreams != 3 || s.threads != 4 ||
		s.nodelay != nodelayDefault || s.records != recordNone {
		t.Fatalf("found %+v", s)
	}
}

func TestEveryFlagIsNeeded(t *testing.T) {
	parse := map[*[]string]func([]string) error{
		&clientFlags: func(a []string) error { _, err := parseClient(a); return err },
		&targetFlags: func(a []string) error { _, err := parseTarget(a); return err },
	}
	for flags, parse := range parse {
		for i, flag := range *flags {
			name, _, _ := strings.Cut(flag, "=")
			err := parse(slices.Delete(slices.Clone(*flags), i, i+1))
			if err == nil || err.Error() != name+": missing" {
				t.Errorf("without %s: %v", name, err)
			}
			err = parse(append(slices.Clone(*flags), flag))
			if err == nil || err.Error() != name+": given twice" {
				t.Errorf("twice %s: %v", name, err)
			}
		}
	}
}

func TestRefusedClientFlags(t *testing.T) {
	for _, flag := range []string{
		"--stack=rust", "--target=localhost", "--target=:1", "--target=h:0", "--target=h:65536", "--call=both",
		"--channels=local-pool", "--channels=pool:0", "--channels=pool:", "--channels=", "--schedule=1000",
		"--schedule=0/1", "--schedule=1/0", "--schedule=open", "--in-flight=0", "--in-flight=+1", "--threads=0",
		"--request-bytes=-1", "--request-bytes=3000000000", "--response-bytes=x", "--think-ns=1.5", "--nodelay=yes",
		"--split-writes=on", "--timeout-ns=0", "--warmup-ns=9223372036854775808", "--duration-ns=", "--calls=1e3",
		"--trace=", "--records=some", "--record-file=", "--records=none", "--colour=on", "-x", "go",
	} {
		if _, err := parseClient(with(clientFlags, flag)); err == nil {
			t.Errorf("%s was taken", flag)
		}
	}
	if _, err := parseClient(with(with(clientFlags, "--channels=per-worker"), "--in-flight=1025")); err == nil {
		t.Error("1025 channels of an open loop were taken")
	}
}

func FuzzFlags(f *testing.F) {
	f.Add(strings.Join(clientFlags, "\n"))
	f.Add(strings.Join(targetFlags, "\n"))
	f.Fuzz(func(t *testing.T, lines string) {
		args := strings.Split(lines, "\n")
		if s, err := parseClient(args); err == nil {
			if len(args) != len(clientFlags) || s.inFlight < 1 || s.threads < 1 || s.timeout < 1 ||
				s.channels.count(s.inFlight) < 1 || newTimetable(time.Now(), s).measuredEnd < s.warmup {
				t.Fatalf("taken: %+v", s)
			}
		}
		if s, err := parseTarget(args); err == nil {
			if len(args) != len(targetFlags) || s.threads < 1 || s.responseBytes > maxResponseBytes {
				t.Fatalf("taken: %+v", s)
			}
		}
	})
}
