package main

import (
	"net"
	"sync/atomic"
)

// listener numbers the connections that it accepts, and sets their TCP_NODELAY.
type listener struct {
	net.Listener
	nodelay  nodelayChoice
	messages *messages
	next     atomic.Uint32
}

// numberedAddr is the address of a peer with the number of its connection, so that a handler can find it.
type numberedAddr struct {
	net.Addr
	id uint32
}

type numberedConn struct {
	*net.TCPConn
	peer numberedAddr
}

func (c *numberedConn) RemoteAddr() net.Addr { return c.peer }

// Accept waits for a connection.
func (l *listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	socket := accepted.(*net.TCPConn)
	if err := setNodelay(socket, l.nodelay); err != nil {
		// The peer may be gone already, which the server will notice.
		complain(err)
	}
	id := l.next.Add(1) - 1
	if id < unknownConnection {
		l.messages.send(connectionMessage{
			"connection", id, int(id), socket.LocalAddr().String(), socket.RemoteAddr().String(),
		})
	}
	return &numberedConn{socket, numberedAddr{socket.RemoteAddr(), id}}, nil
}
