package main

import (
	crand "crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
)

const traceparentHeader = "traceparent"

// ids generates trace and span ids. It belongs to one worker.
type ids struct{ source *rand.PCG }

func newIDs() *ids {
	var seed [16]byte
	// Go's reader of the kernel's random numbers ends the process rather than fail.
	_, _ = crand.Read(seed[:])
	return &ids{rand.NewPCG(binary.LittleEndian.Uint64(seed[:8]), binary.LittleEndian.Uint64(seed[8:]))}
}

func (i *ids) nonzero() uint64 {
	for {
		if n := i.source.Uint64(); n != 0 {
			return n
		}
	}
}

func (i *ids) trace() (id [16]byte) {
	binary.BigEndian.PutUint64(id[:8], i.source.Uint64())
	binary.BigEndian.PutUint64(id[8:], i.nonzero())
	return id
}

func (i *ids) span() (id [8]byte) {
	binary.BigEndian.PutUint64(id[:], i.nonzero())
	return id
}

// randomSpan is a span id for callers without ids of their own.
func randomSpan() (id [8]byte) {
	for id == [8]byte{} {
		binary.BigEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// traceparent is the header of a sampled call.
func traceparent(traceID [16]byte, spanID [8]byte) string {
	b := make([]byte, 0, 55)
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, traceID[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, spanID[:])
	b = append(b, "-01"...)
	return string(b)
}

// parseTraceparent parses a header's value; false if it is malformed. A version above 00 is read as far as 00 goes.
func parseTraceparent(header string) (traceID [16]byte, spanID [8]byte, sampled, ok bool) {
	const length = 55
	if len(header) < length || header[2] != '-' || header[35] != '-' || header[52] != '-' {
		return
	}
	if len(header) > length && (header[length] != '-' || header[:2] == "00") {
		return
	}
	for _, c := range []byte(header[:length]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && c != '-' {
			return
		}
	}
	var version, flags [1]byte
	for _, part := range []struct {
		to   []byte
		text string
	}{{version[:], header[:2]}, {traceID[:], header[3:35]}, {spanID[:], header[36:52]}, {flags[:], header[53:55]}} {
		if _, err := hex.Decode(part.to, []byte(part.text)); err != nil {
			return
		}
	}
	if version[0] == 0xff || traceID == [16]byte{} || spanID == [8]byte{} {
		return
	}
	return traceID, spanID, flags[0]&1 != 0, true
}
