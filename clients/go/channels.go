package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"spangap/clients/go/ping"
)

// dialer opens the connections of all channels and numbers them.
type dialer struct {
	nodelay  nodelayChoice
	messages *messages
	next     atomic.Uint32
}

// channel is a grpc.ClientConn and the facts known about its connection.
type channel struct {
	*grpc.ClientConn
	number  int
	dialer  *dialer
	current atomic.Uint32 // id of the open connection, or unknownConnection

	lock   sync.Mutex
	failed error // why the last connection could not be opened
}

// connection tells its channel when it is closed.
type connection struct {
	*net.TCPConn
	id      uint32
	channel *channel
}

func (c *connection) Close() error {
	c.channel.current.CompareAndSwap(c.id, unknownConnection)
	return c.TCPConn.Close()
}

func (c *channel) dial(ctx context.Context, address string) (net.Conn, error) {
	socket, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err == nil {
		err = setNodelay(socket.(*net.TCPConn), c.dialer.nodelay)
	}
	c.lock.Lock()
	c.failed = err
	c.lock.Unlock()
	if err != nil {
		return nil, err
	}
	id := c.dialer.next.Add(1) - 1
	if id < unknownConnection {
		c.dialer.messages.send(connectionMessage{
			"connection", id, c.number, socket.LocalAddr().String(), socket.RemoteAddr().String(),
		})
		c.current.Store(id)
	}
	return &connection{socket.(*net.TCPConn), id, c}, nil
}

func setNodelay(socket *net.TCPConn, choice nodelayChoice) error {
	if choice == nodelayDefault {
		return nil
	}
	return socket.SetNoDelay(choice == nodelayOn)
}

// openChannels makes the channels and connects them, one after the other.
func openChannels(ctx context.Context, s *clientSettings, messages *messages) ([]*channel, error) {
	d := &dialer{nodelay: s.nodelay, messages: messages}
	channels := make([]*channel, s.channels.count(s.inFlight))
	for i := range channels {
		c := &channel{number: i, dialer: d}
		c.current.Store(unknownConnection)
		var err error
		// The dialer gets the address as given: it resolves names itself, and no proxy is used.
		c.ClientConn, err = grpc.NewClient("passthrough:///"+s.target,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(c.dial),
			grpc.WithNoProxy(),
			// A run with long pauses between calls keeps its connection.
			grpc.WithIdleTimeout(0),
			grpc.WithDefaultCallOptions(
				grpc.StaticMethod(), grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
		)
		if err != nil {
			return nil, fmt.Errorf("cannot connect to %s: %w", s.target, err)
		}
		channels[i] = c
		limited, cancel := context.WithTimeout(ctx, s.timeout)
		err = c.connect(limited)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("cannot connect to %s: %w", s.target, err)
		}
	}
	return channels, nil
}

// connect waits until the connection is ready or the first attempt has failed.
func (c *channel) connect(ctx context.Context) error {
	c.Connect()
	for {
		state := c.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure:
			return c.whyNot(ctx)
		}
		if !c.WaitForStateChange(ctx, state) {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return errors.New("not connected within the timeout")
			}
			return ctx.Err()
		}
	}
}

func (c *channel) whyNot(ctx context.Context) error {
	c.lock.Lock()
	failed := c.failed
	c.lock.Unlock()
	if failed != nil {
		return plainest(failed)
	}
	// The socket was opened and the transport failed: only a call returns the reason.
	err := c.Invoke(ctx, ping.Ping_Usage_FullMethodName, &ping.UsageRequest{}, &ping.UsageResponse{})
	return errors.New(status.Convert(err).Message())
}

// plainest is the kernel's own error, if there is one: the messages already name the address.
func plainest(err error) error {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number
	}
	return err
}
