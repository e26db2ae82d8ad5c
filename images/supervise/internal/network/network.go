// Package network tells which addresses accept connections.
package network

import (
	"context"
	"net"
	"sync"
	"time"
)

const (
	probeTimeout = 300 * time.Millisecond
	probePause   = 100 * time.Millisecond
	openPause    = 10 * time.Millisecond
)

// WaitClosed repeats until no address accepts a connection, in one and the same round. It
// reports false when an address was still open when the time was over.
func WaitClosed(addresses []string, limit time.Duration, stop <-chan struct{}) bool {
	deadline := time.Now().Add(limit)
	for {
		if AllClosed(addresses) {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		select {
		case <-stop:
			return false
		case <-time.After(probePause):
		}
	}
}

// WaitOpen returns when each address has accepted a connection; it reports false when it was told to
// stop. Who listens there bounds the time: a sidecar that does not get ready ends, and so does its Pod.
func WaitOpen(addresses []string, stop <-chan struct{}) bool {
	for _, address := range addresses {
		for !IsOpen(address) {
			select {
			case <-stop:
				return false
			case <-time.After(openPause):
			}
		}
	}
	return true
}

// AllClosed reports whether no address accepts a connection; all are tried at once.
func AllClosed(addresses []string) bool {
	open := make([]bool, len(addresses))
	var group sync.WaitGroup
	for index, address := range addresses {
		group.Go(func() { open[index] = IsOpen(address) })
	}
	group.Wait()
	for _, each := range open {
		if each {
			return false
		}
	}
	return true
}

// IsOpen reports whether an address accepts a connection within a moment.
func IsOpen(address string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	return Accepts(ctx, address)
}

// Accepts reports whether an address accepts a connection before ctx ends.
func Accepts(ctx context.Context, address string) bool {
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = connection.Close()
	return true
}
