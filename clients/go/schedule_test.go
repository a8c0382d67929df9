package main

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

func TestDueIsExact(t *testing.T) {
	source := rand.New(rand.NewPCG(5, 6))
	draw := func() uint64 { return source.Uint64() >> source.IntN(64) }
	big64 := func(n uint64) *big.Int { return new(big.Int).SetUint64(n) }
	for range 100_000 {
		s := schedule{calls: draw() | 1, ns: draw() | 1}
		n := draw()
		exact := new(big.Int).Mul(big64(n), big64(s.ns))
		exact.Div(exact, big64(s.calls))
		due, fits := s.due(n)
		if fits != exact.IsInt64() || (fits && int64(due) != exact.Int64()) {
			t.Fatalf("call %d of %d/%d is due at %d (fits: %v), expected %v", n, s.calls, s.ns, due, fits, exact)
		}
	}
}

func TestPhases(t *testing.T) {
	table := newTimetable(time.Now(), &clientSettings{warmup: 10, duration: 5})
	for at, expected := range map[time.Duration]phase{0: warmup, 9: warmup, 10: measured, 14: measured, 15: over} {
		if found := table.phaseAt(at); found != expected {
			t.Errorf("phase %d at %d, expected %d", found, at, expected)
		}
	}
	endless := newTimetable(time.Now(), &clientSettings{})
	if found := endless.phaseAt(1 << 60); found != measured {
		t.Errorf("phase %d, expected no end", found)
	}
}
