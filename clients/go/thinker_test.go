package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

func TestThinkingTakesAtLeastItsTime(t *testing.T) {
	thinker, err := newThinker()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- thinker.run() }()
	var calls sync.WaitGroup
	for range 500 {
		calls.Add(1)
		go func() {
			defer calls.Done()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if rand.IntN(4) == 0 {
				cancel()
				if thinker.think(ctx, time.Hour) == nil {
					t.Error("a call that was given up thought for an hour")
				}
				return
			}
			wanted, began := time.Duration(1+rand.IntN(5_000_000)), time.Now()
			if err := thinker.think(ctx, wanted); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took < wanted {
				t.Errorf("thought for %v, expected at least %v", took, wanted)
			}
		}()
	}
	calls.Wait()
	if len(thinker.calls) != 0 {
		t.Errorf("%d calls still wait", len(thinker.calls))
	}
	thinker.close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
