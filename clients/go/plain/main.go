// Command plain is the plainest closed loop of grpc-go: what `spangap-go client` is compared with.
//
//	plain TARGET IN_FLIGHT WARMUP_S SECONDS
//
// IN_FLIGHT goroutines ping over one channel, with nothing but a count of the calls. Prints the calls, the seconds
// and the CPU seconds of the time after the warm-up.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"spangap/clients/go/ping"
)

type counter struct {
	calls atomic.Uint64
	_     [56]byte
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 5 {
		log.Fatal("usage: plain TARGET IN_FLIGHT WARMUP_S SECONDS")
	}
	inFlight := int(number(os.Args[2]))
	warmup, seconds := number(os.Args[3]), number(os.Args[4])
	channel, err := grpc.NewClient("passthrough:///"+os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	client := ping.NewPingClient(channel)
	counters := make([]counter, inFlight)
	for i := range counters {
		go func() {
			request := &ping.PingRequest{}
			for {
				if _, err := client.Ping(context.Background(), request); err != nil {
					log.Fatal(err)
				}
				counters[i].calls.Add(1)
			}
		}()
	}
	time.Sleep(time.Duration(warmup * 1e9))
	calls, cpu, began := sum(counters), cpuSeconds(), time.Now()
	time.Sleep(time.Duration(seconds * 1e9))
	took := time.Since(began).Seconds()
	fmt.Printf("{\"calls\":%d,\"seconds\":%.6f,\"cpu_s\":%.6f}\n", sum(counters)-calls, took, cpuSeconds()-cpu)
}

func number(text string) float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < 0 {
		log.Fatalf("found %q (expected a number)", text)
	}
	return n
}

func sum(counters []counter) (calls uint64) {
	for i := range counters {
		calls += counters[i].calls.Load()
	}
	return calls
}

func cpuSeconds() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		log.Fatal(err)
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}
