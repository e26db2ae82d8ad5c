// Package egress is the verb egress-proxy: the sidecar through which an agent reaches its run's gateway.
package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"securebench.dev/supervise/internal/cgroup"
	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/process"
	"securebench.dev/supervise/internal/specs"
)

// bounds are what the sidecar waits for and writes at most.
type bounds struct {
	// reply is for the gateway to take a connection and to answer its first line; it resolves nothing
	// by then.
	reply time.Duration
	// retry lies between two tries to reach the gateway.
	retry time.Duration
	// absent is for a gateway to come back, of each connection; clients wait about as long for a proxy.
	absent time.Duration
	// first is for the agent's first byte: what it opens in advance is not sent on.
	first time.Duration
	// drain and drainBytes are read and dropped after an answer of ours, so that the answer arrives.
	drain      time.Duration
	drainBytes int64
	// lines are kept of one sidecar; the gateway's own log is the one that counts.
	lines int
}

func usualBounds() bounds {
	return bounds{
		reply:      15 * time.Second,
		retry:      200 * time.Millisecond,
		absent:     10 * time.Second,
		first:      10 * time.Minute,
		drain:      time.Second,
		drainBytes: 256 << 10,
		lines:      1000,
	}
}

// sidecar is the sidecar egress-proxy of a harness Pod: it carries the agent's bytes to the
// run's gateway and decides nothing.
type sidecar struct {
	spec   specs.Egress
	bounds bounds
	// connect opens a connection to the gateway's address.
	connect func(context.Context) (net.Conn, error)

	output sync.Mutex
	log    io.Writer
}

// Proxy serves until it gets a signal to stop and returns the exit code: 0 when the gateway has
// written its report and was there for every connection. Its termination message says what it took.
func Proxy(text, log string) int {
	// First of all: as PID 1, a stop signal that comes before there is somebody to take it is lost.
	stop := process.WatchStop()
	used := cgroup.MeasureUsage(cgroup.MemoryPeaks, cgroup.CpuStats)
	spec, err := specs.DecodeEgress(text)
	if err != nil {
		fmt.Fprintln(os.Stderr, "supervise:", err)
		return outcome.CodeOwnFault
	}
	code := newSidecar(spec, usualBounds(), os.Stdout).serve(stop)
	// Without the message the exit code still says everything that counts.
	_ = os.WriteFile(log, outcome.WithUsage([]byte(`{"v":1}`), used()), 0o644)
	return code
}

func newSidecar(spec specs.Egress, bounds bounds, log io.Writer) *sidecar {
	address := spec.Gateway.Address()
	connect := func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", address) }
	return &sidecar{spec: spec, bounds: bounds, connect: connect, log: log}
}

// serve carries connections until stop, then ends the launch; it returns the exit code.
func (s *sidecar) serve(stop <-chan struct{}) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	reached := make(chan bool, 1)
	go func() { reached <- s.reach(ctx) }()
	carrier := newCarrier(s)
	select {
	case <-stop:
	case there := <-reached:
		if !there {
			s.say(fmt.Sprintf("the gateway did not accept a connection within %g seconds", s.spec.StartSeconds))
			return outcome.CodeFailed
		}
		if err := carrier.listen(); err != nil {
			s.say(err.Error())
			return outcome.CodeFailed
		}
		<-stop
		carrier.close()
	}
	cancel()
	closed := s.closeLaunch()
	if carrier.missed.Load() {
		s.say("a connection of the agent stayed without the gateway: the launch does not count")
	}
	if !closed || carrier.missed.Load() {
		return outcome.CodeFailed
	}
	return outcome.CodeDone
}

// reach waits until the gateway accepts a connection and reports whether it did in time.
func (s *sidecar) reach(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, specs.Duration(s.spec.StartSeconds))
	defer cancel()
	for {
		connection, err := s.connect(ctx)
		if err == nil {
			_ = connection.Close()
			return true
		}
		if !pause(ctx, s.bounds.retry) {
			return false
		}
	}
}

// closeLaunch tells the gateway that the harness has ended and reports whether it wrote its report. It
// is told again until it says so: an answer may be lost, a gateway may just be replaced.
func (s *sidecar) closeLaunch() bool {
	ctx, cancel := context.WithTimeout(context.Background(), specs.Duration(s.spec.CloseSeconds))
	defer cancel()
	problem := errors.New("no answer")
	buffer := make([]byte, chunk)
	for {
		stream, err := s.dial(ctx, specs.RouteClose, buffer)
		if err == nil {
			reset(stream.connection)
			s.say("the gateway closed the launch")
			return true
		}
		if ctx.Err() == nil {
			problem = err
		}
		if !pause(ctx, s.bounds.retry) {
			s.say(fmt.Sprintf("the gateway did not close the launch in time: %v", problem))
			return false
		}
	}
}

func (s *sidecar) say(line string) {
	s.output.Lock()
	defer s.output.Unlock()
	_, _ = fmt.Fprintf(s.log, "egress-proxy: %s\n", line)
}

// pause reports false when ctx ended before the time was over.
func pause(ctx context.Context, length time.Duration) bool {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
