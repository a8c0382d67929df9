package main

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/status"
)

// thinker wakes calls after their think time, with the precision of the kernel's timers and without a thread for
// each call.
type thinker struct {
	lock    sync.Mutex
	waiting thoughts
}

type thought struct {
	until time.Time
	done  chan struct{}
}

// thoughts is a heap with the earliest first.
type thoughts []thought

func (t thoughts) Len() int           { return len(t) }
func (t thoughts) Less(i, j int) bool { return t[i].until.Before(t[j].until) }
func (t thoughts) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }

// Push is part of heap.Interface.
func (t *thoughts) Push(x any) { *t = append(*t, x.(thought)) }

// Pop is part of heap.Interface.
func (t *thoughts) Pop() any {
	last := len(*t) - 1
	x := (*t)[last]
	*t = (*t)[:last]
	return x
}

var _ heap.Interface = (*thoughts)(nil)

func newThinker() *thinker { return &thinker{} }

func (t *thinker) think(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}
