package main

import "google.golang.org/grpc/codes"

// statusNames are gRPC's own names, by code.
var statusNames = [...]string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
	"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
	"INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

// knownCode is the code, or UNKNOWN if gRPC does not define it.
func knownCode(code codes.Code) codes.Code {
	if int(code) >= len(statusNames) {
		return codes.Unknown
	}
	return code
}
