package main

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var sample = record{
	traceID: [16]byte{1, 2, 15: 3}, spanID: [8]byte{4, 7: 5}, parentID: [8]byte{6, 7: 7},
	at: time.Unix(0, 0x0102030405060708), duration: 0x1112131415161718, lateness: 0x2122232425262728,
	code: 14, flags: flagMeasured | flagSlow, connection: 0xfffe,
}

const sampleBytes = "01020000000000000000000000000003" + "0400000000000005" + "0600000000000007" +
	"0807060504030201" + "1817161514131211" + "2827262524232221" + "0e" + "03" + "feff" + "00000000"

func TestRecordLayout(t *testing.T) {
	var bytes [recordBytes]byte
	sample.put(&bytes)
	if found := hex.EncodeToString(bytes[:]); found != sampleBytes {
		t.Fatalf("found %s, expected %s", found, sampleBytes)
	}
}

func TestRecordsReachTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records")
	never := make(chan struct{})
	r, err := openRecorder(path)
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for range 5000 {
		if r.keep(&sample) {
			kept++
		}
	}
	r.finish(never)
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(written) != kept*recordBytes || hex.EncodeToString(written[len(written)-recordBytes:]) != sampleBytes {
		t.Fatalf("%d bytes for %d records", len(written), kept)
	}
}

func TestRecordsThatCannotBeWrittenAreCounted(t *testing.T) {
	never := make(chan struct{})
	r, err := openRecorder("/dev/full")
	if err != nil {
		t.Skipf("not run: %v", err)
	}
	kept := uint64(0)
	for range 5000 {
		if r.keep(&sample) {
			kept++
		}
	}
	r.finish(never)
	if dropped := r.dropped[measured].Load(); dropped != kept {
		t.Fatalf("%d counted as dropped, expected all %d", dropped, kept)
	}
}
