package main

import (
	"math/bits"
	"strconv"
)

const (
	// slots per power of two: no bucket is wider than 1/1024 of its values.
	slotBits = 10
	slots    = 1 << slotBits
	octaves  = 64 - slotBits + 1
)

// histogram counts durations in ns. Values below 2048 have a bucket each; above, every power of two is divided into
// 1024 buckets. An octave's slots are allocated with its first value, so that later values cost no allocation.
type histogram struct {
	max, sum uint64
	octaves  [octaves]*[slots]uint64
}

func (h *histogram) add(ns uint64) {
	h.sum += ns
	if ns > h.max {
		h.max = ns
	}
	octave, slot := bucketOf(ns)
	h.octave(octave)[slot]++
}

func bucketOf(ns uint64) (octave, slot int) {
	if ns < slots {
		return 0, int(ns)
	}
	octave = bits.Len64(ns) - slotBits
	return octave, int(ns>>(octave-1)) - slots
}

// valueOf is the middle of a bucket.
func valueOf(octave, slot int) uint64 {
	if octave == 0 {
		return uint64(slot)
	}
	shift := octave - 1
	return uint64(slots+slot)<<shift + 1<<shift>>1
}

func (h *histogram) octave(i int) *[slots]uint64 {
	if h.octaves[i] == nil {
		h.octaves[i] = new([slots]uint64)
	}
	return h.octaves[i]
}

// take adds the content of other and empties it.
func (h *histogram) take(other *histogram) {
	if other.max > h.max {
		h.max = other.max
	}
	h.sum += other.sum
	for i, from := range &other.octaves {
		if from == nil {
			continue
		}
		to := h.octave(i)
		for slot, n := range from {
			to[slot] += n
		}
	}
	other.clear()
}

// clear keeps the allocated slots.
func (h *histogram) clear() {
	h.max, h.sum = 0, 0
	for _, octave := range &h.octaves {
		if octave != nil {
			*octave = [slots]uint64{}
		}
	}
}

// each visits the non-empty buckets in ascending order.
func (h *histogram) each(f func(value, count uint64)) {
	for i, octave := range &h.octaves {
		if octave == nil {
			continue
		}
		for slot, n := range octave {
			if n > 0 {
				f(valueOf(i, slot), n)
			}
		}
	}
}

// appendJSON writes the histogram in the form that messages use.
func (h *histogram) appendJSON(b []byte) []byte {
	b = append(b, `{"max":`...)
	b = strconv.AppendUint(b, h.max, 10)
	b = append(b, `,"sum":`...)
	b = strconv.AppendUint(b, h.sum, 10)
	b = append(b, `,"buckets":[`...)
	first := true
	h.each(func(value, count uint64) {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, '[')
		b = strconv.AppendUint(b, value, 10)
		b = append(b, ',')
		b = strconv.AppendUint(b, count, 10)
		b = append(b, ']')
	})
	return append(b, `]}`...)
}
