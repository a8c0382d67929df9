package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"
)

const (
	recordBytes  = 64
	recordsQueue = 65536
	// unknownConnection stands for an unknown connection in records.
	unknownConnection = 65535
)

// Flags of a record.
const (
	flagMeasured = 1 << 0
	flagSlow     = 1 << 1
	flagStream   = 1 << 2 // a ping inside a stream
)

// record is one call as this side saw it.
type record struct {
	traceID    [16]byte
	spanID     [8]byte
	parentID   [8]byte
	at         time.Time // sent (client) or received (target)
	duration   time.Duration
	lateness   time.Duration
	code       uint8
	flags      uint8
	connection uint16
}

func (r *record) put(b *[recordBytes]byte) {
	copy(b[0:16], r.traceID[:])
	copy(b[16:24], r.spanID[:])
	copy(b[24:32], r.parentID[:])
	binary.LittleEndian.PutUint64(b[32:], uint64(r.at.UnixNano()))
	binary.LittleEndian.PutUint64(b[40:], uint64(r.duration))
	binary.LittleEndian.PutUint64(b[48:], uint64(r.lateness))
	b[56] = r.code
	b[57] = r.flags
	binary.LittleEndian.PutUint16(b[58:], r.connection)
	binary.LittleEndian.PutUint32(b[60:], 0)
}

// recorder writes records from a bounded queue, so that no call waits for the file.
type recorder struct {
	queue   chan [recordBytes]byte
	done    chan struct{}
	dropped [phases]atomic.Uint64 // taken from the queue and not written
}

// openRecorder opens the file and starts writing. The writer opens a FIFO, because that waits for a reader and nothing
// else should.
func openRecorder(path string) (*recorder, error) {
	r := &recorder{queue: make(chan [recordBytes]byte, recordsQueue), done: make(chan struct{})}
	if about, err := os.Stat(path); err == nil && about.Mode()&os.ModeNamedPipe != 0 {
		go func() {
			file, err := create(path)
			if err != nil {
				complain(err)
				r.lose()
				return
			}
			r.write(file)
		}()
		return r, nil
	}
	file, err := create(path)
	if err != nil {
		return nil, err
	}
	go r.write(file)
	return r, nil
}

func create(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot write records: %w", err)
	}
	return file, nil
}

// lose counts whatever arrives as dropped, until nothing more does.
func (r *recorder) lose() {
	for bytes := range r.queue {
		r.dropped[bytes[57]&flagMeasured].Add(1)
	}
	close(r.done)
}

// keep puts a record into the queue; false if it is full.
func (r *recorder) keep(record *record) bool {
	var bytes [recordBytes]byte
	record.put(&bytes)
	select {
	case r.queue <- bytes:
		return true
	default:
		return false
	}
}

// finish writes what is queued, unless limit comes first. No record may be kept afterwards.
func (r *recorder) finish(limit <-chan struct{}) {
	close(r.queue)
	select {
	case <-r.done:
	case <-limit:
		// The writer will not write what it has not taken.
		for bytes := range r.queue {
			r.dropped[bytes[57]&flagMeasured].Add(1)
		}
	}
}

func (r *recorder) write(file io.WriteCloser) {
	defer close(r.done)
	output := bufio.NewWriterSize(file, 1024*recordBytes)
	buffered := [phases]uint64{}
	var failed error
	flush := func() {
		if failed == nil {
			failed = output.Flush()
			if failed != nil {
				complain(fmt.Errorf("cannot write records: %w", failed))
			}
		}
		if failed != nil {
			for i := range buffered {
				r.dropped[i].Add(buffered[i])
			}
		}
		buffered = [phases]uint64{}
	}
	for bytes := range r.queue {
		buffered[bytes[57]&flagMeasured]++
		if failed == nil {
			_, _ = output.Write(bytes[:])
		}
		if output.Available() < recordBytes || len(r.queue) == 0 {
			flush()
		}
	}
	flush()
	_ = file.Close()
}
