// deadline HOST:PORT: grpc-go calls a server that does not answer in time, three times with a deadline of 200 ms.
package main

import (
	"context"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

func main() {
	connection, err := grpc.NewClient("passthrough:///"+os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		err := connection.Invoke(ctx, "/spangap.ping.v1.Ping/Ping", &emptypb.Empty{}, &emptypb.Empty{})
		cancel()
		if status.Code(err) != codes.DeadlineExceeded {
			log.Fatal(err)
		}
	}
}
