// Package ping is the service spangap.ping.v1.Ping, generated from crates/bench/proto by `go generate ./ping`.
package ping

//go:generate sh generate.sh .
