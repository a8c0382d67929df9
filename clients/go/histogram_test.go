package main

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// durations of every size: as many between 2^n and 2^(n+1) for each n.
func durations(source *rand.Rand, n int) []uint64 {
	values := make([]uint64, n)
	for i := range values {
		values[i] = source.Uint64() >> source.IntN(64)
	}
	return values
}

func TestHistogramAgainstSortedValues(t *testing.T) {
	source := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		values := durations(source, 1+source.IntN(5000))
		var parts [3]histogram
		var sum, largest uint64
		for i, value := range values {
			parts[i%len(parts)].add(value)
			sum += value
			largest = max(largest, value)
		}
		var h histogram
		for i := range parts {
			h.take(&parts[i])
			parts[i].each(func(value, count uint64) { t.Fatalf("%d of %d left after take", count, value) })
		}
		if h.sum != sum || h.max != largest {
			t.Fatalf("sum %d and max %d, expected %d and %d", h.sum, h.max, sum, largest)
		}
		slices.Sort(values)
		before, rank := int64(-1), 0
		h.each(func(value, count uint64) {
			if int64(value>>1) < before {
				t.Fatalf("%d after a larger value", value)
			}
			before = int64(value >> 1)
			for range count {
				exact := values[rank]
				rank++
				if distance := math.Abs(float64(value) - float64(exact)); distance > float64(exact)/1000 {
					t.Fatalf("value of rank %d: %d, expected %d within 1/1000", rank, value, exact)
				}
			}
		})
		if rank != len(values) {
			t.Fatalf("%d values, expected %d", rank, len(values))
		}
	}
}

func TestBucketsAreNarrowAndHoldTheirValue(t *testing.T) {
	for _, value := range append(durations(rand.New(rand.NewPCG(3, 4)), 100_000), 0, 1, 1023, 1024, 2047, 2048, math.MaxUint64) {
		octave, slot := bucketOf(value)
		middle := valueOf(octave, slot)
		if o, s := bucketOf(middle); o != octave || s != slot {
			t.Fatalf("%d is in bucket %d/%d, its middle %d in %d/%d", value, octave, slot, middle, o, s)
		}
	}
}

func TestAddAllocatesOnlyOncePerOctave(t *testing.T) {
	var h histogram
	h.add(300_000)
	if n := testing.AllocsPerRun(100, func() { h.add(333_333) }); n != 0 {
		t.Fatalf("%v allocations, expected none", n)
	}
}

func TestHistogramJSON(t *testing.T) {
	var h histogram
	if got := string(h.appendJSON(nil)); got != `{"max":0,"sum":0,"buckets":[]}` {
		t.Fatalf("empty: %s", got)
	}
	for _, ns := range []uint64{7, 7, 5000} {
		h.add(ns)
	}
	var read struct {
		Max, Sum uint64
		Buckets  [][2]uint64
	}
	if err := json.Unmarshal(h.appendJSON(nil), &read); err != nil {
		t.Fatal(err)
	}
	if read.Max != 5000 || read.Sum != 5014 || !slices.Equal(read.Buckets, [][2]uint64{{7, 2}, {5002, 1}}) {
		t.Fatalf("found %+v", read)
	}
}
