// Package egress is the verb egress-proxy: the sidecar through which an agent reaches its run's gateway.
package egress

import (
	"context"
	"encoding/json"
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

var (
	errMissed   = errors.New("a connection of the agent stayed without the gateway: the launch does not count")
	errNoAnswer = errors.New("no answer")
)

// bounds are what the sidecar waits for and writes at most.
type bounds struct {
	// reply is for the gateway to take a connection and to answer its first line; it resolves nothing
	// by then.
	reply time.Duration
	// try is for one try to reach the gateway at first: the kernel repeats what a network dropped that was not
	// up yet at longer and longer intervals.
	try time.Duration
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
		try:        2 * time.Second,
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

// message is the termination message.
type message struct {
	V     int    `json:"v"`
	Error string `json:"error,omitempty"`
}

// Proxy serves until it gets a signal to stop and returns the exit code: 0 when the gateway has
// written its report and was there for every connection. Its termination message says what went wrong and
// what it took.
func Proxy(text, log string) int {
	// First of all: as PID 1, a stop signal that comes before there is somebody to take it is lost.
	stop := process.WatchStop()
	used := cgroup.MeasureUsage(cgroup.MemoryPeaks, cgroup.CpuStats)
	said := message{V: 1}
	code, err := proxy(text, stop)
	if err != nil {
		said.Error = err.Error()
	}
	// Without the message the exit code still says everything that counts.
	if encoded, err := json.Marshal(said); err == nil {
		_ = os.WriteFile(log, outcome.WithUsage(encoded, used()), 0o644)
	}
	return code
}

// proxy serves as a specification says and returns the exit code, and why it is not 0.
func proxy(text string, stop <-chan struct{}) (int, error) {
	spec, err := specs.Read[specs.Egress](text)
	if err != nil {
		fmt.Fprintln(os.Stderr, "supervise:", err)
		return outcome.CodeOwnFault, err
	}
	sidecar := newSidecar(spec, usualBounds(), os.Stdout)
	if err := sidecar.serve(stop); err != nil {
		sidecar.say(err.Error())
		return outcome.CodeFailed, err
	}
	return outcome.CodeDone, nil
}

func newSidecar(spec specs.Egress, bounds bounds, log io.Writer) *sidecar {
	address := spec.Gateway.Address()
	connect := func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", address) }
	return &sidecar{spec: spec, bounds: bounds, connect: connect, log: log}
}

// serve carries connections until stop, then ends the launch; it returns why the launch does not count, or nil.
func (s *sidecar) serve(stop <-chan struct{}) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	reached := make(chan error, 1)
	go func() { reached <- s.reach(ctx) }()
	carrier := newCarrier(s)
	select {
	case <-stop:
	case err := <-reached:
		if err == nil {
			err = carrier.listen()
		}
		if err != nil {
			return err
		}
		<-stop
		carrier.close()
	}
	cancel()
	err := s.closeLaunch()
	switch {
	case !carrier.missed.Load():
		return err
	case err == nil:
		return errMissed
	default:
		return fmt.Errorf("%w; %w", errMissed, err)
	}
}

// reach waits until the gateway accepts a connection and returns why it did not in time, or nil.
func (s *sidecar) reach(ctx context.Context) error {
	if err := s.insist(ctx, s.spec.StartSeconds, s.tryGateway); err != nil {
		return fmt.Errorf("the gateway did not accept a connection within %g seconds: %w", s.spec.StartSeconds, err)
	}
	return nil
}

func (s *sidecar) tryGateway(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.bounds.try)
	defer cancel()
	connection, err := s.connect(ctx)
	if err == nil {
		_ = connection.Close()
	}
	return err
}

// closeLaunch tells the gateway that the harness has ended and returns why it did not write its report, or
// nil. It is told again until it says so: an answer may be lost, a gateway may just be replaced.
func (s *sidecar) closeLaunch() error {
	buffer := make([]byte, chunk)
	err := s.insist(context.Background(), s.spec.CloseSeconds, func(ctx context.Context) error {
		stream, err := s.dial(ctx, specs.RouteClose, buffer)
		if err == nil {
			reset(stream.connection)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("the gateway did not close the launch in time: %w", err)
	}
	s.say("the gateway closed the launch")
	return nil
}

// insist tries something again and again for so many seconds; it returns nil, or why the latest try failed that
// was not cut off.
func (s *sidecar) insist(ctx context.Context, seconds float64, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, specs.Duration(seconds))
	defer cancel()
	problem := errNoAnswer
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			problem = err
		}
		if !pause(ctx, s.bounds.retry) {
			return problem
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
