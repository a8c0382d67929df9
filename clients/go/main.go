// Command spangap-go calls (`client`) or serves (`target`) pings with grpc-go, for `spangap tank` and `spangap target`.
// clients/CONTRACT.md specifies its interface.
package main

import (
	"fmt"
	"os"
	"runtime"

	"google.golang.org/grpc"
)

const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// library is the stack's name in messages.
const library = "grpc-go " + grpc.Version

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if len(args) == 0 {
		return refuse(fmt.Errorf("which side to be: nothing given (expected client or target)"))
	}
	messages := newMessages(os.Stdout)
	switch side := args[0]; side {
	case "client":
		settings, err := parseClient(args[1:])
		if err != nil {
			return refuse(err)
		}
		runtime.GOMAXPROCS(settings.threads)
		return runClient(settings, watchLife(os.Stdin), messages)
	case "target":
		settings, err := parseTarget(args[1:])
		if err != nil {
			return refuse(err)
		}
		runtime.GOMAXPROCS(settings.threads)
		return runTarget(settings, watchLife(os.Stdin), messages)
	default:
		return refuse(fmt.Errorf("which side to be: found %q (expected client or target)", side))
	}
}

func refuse(err error) int {
	fmt.Fprintln(os.Stderr, "spangap-go:", err)
	return exitUsage
}

func complain(err error) {
	fmt.Fprintln(os.Stderr, "spangap-go:", err)
}
