package main

import (
	"bufio"
	"io"
)

// life is the life line: standard input.
type life struct {
	begin chan struct{} // closed when the line `go` was read
	over  chan struct{} // closed when the input ended
}

func watchLife(input io.Reader) *life {
	l := &life{begin: make(chan struct{}), over: make(chan struct{})}
	go func() {
		defer close(l.over)
		lines := bufio.NewScanner(input)
		begun := false
		for lines.Scan() {
			if lines.Text() == "go" && !begun {
				begun = true
				close(l.begin)
			}
		}
		// A line too long for the scanner: only the end still matters.
		_, _ = io.Copy(io.Discard, input)
	}()
	return l
}
