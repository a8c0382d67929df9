package main

import "testing"

func TestTraceparentRoundTrip(t *testing.T) {
	source := newIDs()
	for range 1000 {
		traceID, spanID := source.trace(), source.span()
		readTrace, readSpan, sampled, ok := parseTraceparent(traceparent(traceID, spanID))
		if !ok || !sampled || readTrace != traceID || readSpan != spanID {
			t.Fatalf("%x %x became %x %x (sampled %v, ok %v)", traceID, spanID, readTrace, readSpan, sampled, ok)
		}
	}
}

func TestTraceparentForms(t *testing.T) {
	const ids = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"
	for header, expected := range map[string]struct{ sampled, ok bool }{
		"00-" + ids + "-01":       {true, true},
		"00-" + ids + "-00":       {false, true},
		"01-" + ids + "-01-later": {true, true},
		"00-" + ids + "-01-later": {},
		"01-" + ids + "-01later":  {},
		"ff-" + ids + "-01":       {},
		"00-" + ids + "-1":        {},
		"":                        {},
		"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01": {},
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": {},
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01": {},
		"00-0af7651916cd43dd8448eb211c8031-c-b7ad6b7169203331-01": {},
	} {
		_, _, sampled, ok := parseTraceparent(header)
		if sampled != expected.sampled || ok != expected.ok {
			t.Errorf("%q: sampled %v, ok %v, expected %+v", header, sampled, ok, expected)
		}
	}
}
