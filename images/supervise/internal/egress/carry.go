package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	egressLoopback = "127.0.0.1"
	// answeredShare: connections above the limit are answered up to so many times the limit; more are
	// cut at once, so that a flood costs no memory.
	answeredShare = 2
)

// carrier listens and carries.
type carrier struct {
	sidecar *sidecar
	// missed tells whether the gateway was not there for a connection. No agent brings this about:
	// refusals, limits and slow answers are none of it.
	missed atomic.Bool

	alive     context.Context // until everything is cut
	end       context.CancelFunc
	listeners map[string]net.Listener
	accepting sync.WaitGroup
	carrying  sync.WaitGroup
	open      atomic.Int64
	lines     atomic.Int64
}

func newCarrier(sidecar *sidecar) *carrier {
	alive, end := context.WithCancel(context.Background())
	return &carrier{sidecar: sidecar, alive: alive, end: end, listeners: map[string]net.Listener{}}
}

// listen accepts connections on the port of every route.
func (c *carrier) listen() error {
	plain := net.ListenConfig{}
	plain.SetMultipathTCP(false)
	for route, port := range c.sidecar.spec.Listen {
		listener, err := plain.Listen(c.alive, "tcp4", net.JoinHostPort(egressLoopback, strconv.Itoa(port)))
		if err != nil {
			c.close()
			return err
		}
		c.listeners[route] = listener
		c.accepting.Go(func() { c.accept(route, listener) })
	}
	return nil
}

// close stops listening and cuts what is still open: nobody is left to read it.
func (c *carrier) close() {
	for _, listener := range c.listeners {
		_ = listener.Close()
	}
	c.accepting.Wait()
	c.end()
	c.carrying.Wait()
}

func (c *carrier) accept(route string, listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Descriptors or memory are used up, which passes.
			pause(c.alive, c.sidecar.bounds.retry)
			continue
		}
		agent := connection.(*net.TCPConn)
		limit := int64(c.sidecar.spec.Connections)
		count := c.open.Add(1)
		if count > answeredShare*limit {
			c.open.Add(-1)
			reset(agent)
			continue
		}
		c.carrying.Go(func() {
			defer c.open.Add(-1)
			c.carry(route, agent, count > limit)
		})
	}
}

// carry serves one connection of the agent to its end.
func (c *carrier) carry(route string, agent *net.TCPConn, crowded bool) {
	unwatch := context.AfterFunc(c.alive, func() { reset(agent) })
	defer unwatch()
	result, err := c.through(route, agent, crowded)
	if c.alive.Err() != nil {
		reset(agent)
		return
	}
	if err != nil {
		reset(agent)
		result = "broken: " + cause(err)
	}
	_ = agent.Close()
	c.note(route + ": " + result)
}

// through carries or answers; it returns what is noted, or the error of a connection that broke.
func (c *carrier) through(route string, agent *net.TCPConn, crowded bool) (string, error) {
	if crowded {
		return "too many connections", c.answer(agent, "503 Service Unavailable", "too many connections are open")
	}
	upwards := make([]byte, chunk)
	first, err := c.firstBytes(agent, upwards)
	if err != nil || first == 0 {
		return "nothing was sent", err
	}
	downwards := make([]byte, chunk)
	gateway, err := c.gateway(route, downwards)
	var refused refusedError
	if errors.As(err, &refused) {
		why := string(refused)
		return "refused: " + why, c.answer(agent, "403 Forbidden", "the gateway refused: "+why)
	}
	if c.alive.Err() != nil {
		return "", c.alive.Err()
	}
	if err != nil {
		why := printable(err.Error())
		return "gateway unreachable: " + why, c.answer(agent, "502 Bad Gateway", "the gateway cannot be reached: "+why)
	}
	pair := egressPair{agent: agent, gateway: gateway.connection}
	unwatch := context.AfterFunc(c.alive, func() { reset(gateway.connection) })
	defer unwatch()
	err = pair.carry(gateway.rest, downwards, first, upwards)
	return fmt.Sprintf("done, %d bytes up, %d bytes down", pair.up, pair.down), err
}

// firstBytes returns how much of the agent's first bytes it read; 0 when none came.
func (c *carrier) firstBytes(agent *net.TCPConn, buffer []byte) (int, error) {
	_ = agent.SetReadDeadline(time.Now().Add(c.sidecar.bounds.first))
	count, err := agent.Read(buffer)
	_ = agent.SetReadDeadline(time.Time{})
	if errors.Is(err, io.EOF) || isSlow(err) {
		return 0, nil
	}
	return count, err
}

// gateway returns an accepted connection; a gateway that is not there is tried again for a while.
// A connection that ends before it comes back is missed too: the agent did not wait so long.
func (c *carrier) gateway(route string, buffer []byte) (gatewayStream, error) {
	giveUp := time.Now().Add(c.sidecar.bounds.absent)
	absent := false
	for {
		stream, err := c.sidecar.dial(c.alive, route, buffer)
		var refused refusedError
		if err == nil || errors.As(err, &refused) {
			return stream, err
		}
		var gone absentError
		isGone := errors.As(err, &gone)
		absent = absent || isGone
		if !isGone || !time.Now().Before(giveUp) || !pause(c.alive, c.sidecar.bounds.retry) {
			if absent {
				c.missed.Store(true)
			}
			return stream, err
		}
	}
}

// answer answers in place of the gateway, and lets the agent read it before the connection ends.
func (c *carrier) answer(agent *net.TCPConn, status, text string) error {
	body := "securebench: " + text + "\n"
	head := fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n",
		status, len(body))
	_ = agent.SetDeadline(time.Now().Add(c.sidecar.bounds.drain))
	if _, err := io.WriteString(agent, head+body); err != nil {
		return unlessSlow(err)
	}
	if err := agent.CloseWrite(); err != nil {
		return err
	}
	_, err := io.CopyN(io.Discard, agent, c.sidecar.bounds.drainBytes)
	return unlessSlow(err)
}

func (c *carrier) note(line string) {
	limit := int64(c.sidecar.bounds.lines)
	switch count := c.lines.Add(1); {
	case count <= limit:
		c.sidecar.say(line)
	case count == limit+1:
		c.sidecar.say("further connections are not listed")
	}
}

// egressPair is an agent's connection and the gateway's for it.
type egressPair struct {
	agent, gateway *net.TCPConn
	up, down       int64
}

// carry carries until both directions have ended; the end of one is passed on, the other goes on. When
// one of the two breaks, the other sees it.
func (p *egressPair) carry(rest, downwards []byte, first int, upwards []byte) error {
	ended := make(chan error, 1)
	go func() {
		var err error
		p.up, err = pump(p.agent, p.gateway, upwards[:first], upwards)
		ended <- p.resetAfter(err)
	}()
	var err error
	p.down, err = pump(p.gateway, p.agent, rest, downwards)
	err = p.resetAfter(err)
	err = firstOf(err, <-ended)
	_ = p.gateway.Close()
	return err
}

func (p *egressPair) resetAfter(err error) error {
	if err != nil {
		reset(p.agent)
		reset(p.gateway)
	}
	return err
}

// pump sends what is there already and then everything up to the end, which it passes on.
func pump(from, to *net.TCPConn, ready, buffer []byte) (int64, error) {
	total := int64(len(ready))
	if _, err := to.Write(ready); err != nil {
		return 0, err
	}
	for {
		count, err := from.Read(buffer)
		if errors.Is(err, io.EOF) {
			return total, to.CloseWrite()
		}
		if err != nil {
			return total, err
		}
		if _, err := to.Write(buffer[:count]); err != nil {
			return total, err
		}
		total += int64(count)
	}
}

// firstOf returns the error that says why: where one direction broke, the other's connections were closed.
func firstOf(one, other error) error {
	if other != nil && (one == nil || errors.Is(one, net.ErrClosed)) {
		return other
	}
	return one
}

// unlessSlow drops the error of a peer that has ended or took its time.
func unlessSlow(err error) error {
	if errors.Is(err, io.EOF) || isSlow(err) {
		return nil
	}
	return err
}

// cause is an error without the addresses of its connection.
func cause(err error) string {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number.Error()
	}
	return err.Error()
}
