// Package process runs commands to their end: streams, signals, limits, proofs, and what examines them before.
package process

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/specs"
)

const (
	// StopAllowance is the time from SIGTERM to the end: the kubelet gives the courier only
	// two seconds once the grace period has passed.
	StopAllowance = 800 * time.Millisecond
	// stopKill is the part of it in which the processes must be gone.
	stopKill = 400 * time.Millisecond
	// killAllowance bounds the waiting for processes that the kernel cannot end (a dead volume).
	killAllowance = 20 * time.Second
	// killPause lies between two rounds of ending processes.
	killPause = 2 * time.Millisecond

	signalBase = 128
)

// Ending is how a phase ended.
type Ending struct {
	ExitCode int
	Signal   int
	TimedOut bool
	Stopped  bool
	refused  bool   // the command could not be started
	Fault    string // why the command could not be started, or did not complete
	grading  string // what the command says that its verdict rests on
	duration time.Duration
}

// children watches the processes below this one.
type children struct {
	first chan unix.WaitStatus // how the command itself ended
	stops chan unix.WaitStatus // each stop of the command, where it is traced
	gone  <-chan struct{}      // closed when no process is left
}

// reap takes the status of every child, adopted ones too, until there is none.
func reap(command int) children {
	first := make(chan unix.WaitStatus, 1)
	stops := make(chan unix.WaitStatus, 1) // it stays stopped until somebody lets it go on
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		reported := false
		for {
			var status unix.WaitStatus
			pid, err := unix.Wait4(-1, &status, unix.WALL, nil)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				return
			}
			if pid == command && status.Stopped() {
				stops <- status
			}
			if pid == command && !reported && (status.Exited() || status.Signaled()) {
				reported = true
				first <- status
			}
		}
	}()
	return children{first: first, stops: stops, gone: gone}
}

// endAll kills until no process is left and reports whether that was reached in time.
func (c children) endAll(allowance time.Duration) bool {
	deadline := time.After(allowance)
	pause := time.NewTicker(killPause)
	defer pause.Stop()
	for {
		killAll()
		select {
		case <-c.gone:
			return true
		case <-deadline:
			return false
		case <-pause.C:
		}
	}
}

// killAll kills every process of the PID namespace. Outside a namespace of its own it kills
// its children, which hands their children over to be killed in the next round.
func killAll() {
	if os.Getpid() == 1 {
		_ = unix.Kill(-1, unix.SIGKILL)
		return
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, thread := range threads {
		list, err := os.ReadFile("/proc/self/task/" + thread.Name() + "/children")
		if err != nil {
			continue
		}
		for _, word := range strings.Fields(string(list)) {
			if pid, err := strconv.Atoi(word); err == nil {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
}

// runPhase runs a command to its end and returns when no process is left.
func runPhase(phase specs.Phase, environment []string, kept [2]*Capture, stop <-chan struct{}) (Ending, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return Ending{}, err
	}
	defer null.Close()
	return RunCommand(phase, environment, null, kept, stop)
}

// RunCommand is runPhase with a file as standard input.
func RunCommand(phase specs.Phase, environment []string, input *os.File, kept [2]*Capture, stop <-chan struct{}) (Ending, error) {
	stdout, err := newPipe(kept[0])
	if err != nil {
		return Ending{}, err
	}
	defer stdout.close()
	stderr, err := newPipe(kept[1])
	if err != nil {
		return Ending{}, err
	}
	defer stderr.close()
	begun := time.Now()
	completion, err := newProof(phase.Proof != "")
	if err != nil {
		return Ending{}, err
	}
	defer completion.close()
	files := append([]uintptr{input.Fd(), stdout.writer.Fd(), stderr.writer.Fd()}, completion.files()...)
	pid, err := start(phase, environment, files)
	completion.started()
	var refused *startError
	if errors.As(err, &refused) {
		return Ending{ExitCode: refused.exitCode, refused: true, Fault: refused.text}, nil
	}
	if err != nil {
		return Ending{}, err
	}
	below := reap(pid)
	stdout.follow()
	stderr.follow()
	watch := &guard{pid: pid, stops: below.stops, first: below.first}
	if phase.Guarded {
		watch.fault = errUntraced
	}
	result := wait(watch, begun, phase.TimeoutSeconds, stop)
	allowance := killAllowance
	if result.Stopped {
		allowance = stopKill
	}
	ended := below.endAll(allowance)
	stdout.finish()
	stderr.finish()
	if watch.fault != nil {
		kept[1].Add([]byte(unguarded + watch.fault.Error() + "\n"))
	}
	if !result.Stopped && !result.TimedOut {
		var holds bool
		if result.grading, holds = completion.given(); !holds {
			result.grading, result.Fault = "", phase.Proof
			kept[1].Add([]byte("securebench: " + phase.Proof + "\n"))
		}
	}
	if !ended && !result.Stopped {
		return result, errors.New("processes are left that cannot be ended")
	}
	return result, nil
}

// wait returns when the command ended, its time is over or the process is told to stop.
func wait(watch *guard, begun time.Time, limit *float64, stop <-chan struct{}) Ending {
	var expired <-chan time.Time
	if limit != nil {
		expired = time.After(time.Until(begun.Add(specs.Duration(*limit))))
	}
	for {
		select {
		case status := <-watch.stops:
			watch.handle(status)
		case status := <-watch.first:
			result := Ending{ExitCode: status.ExitStatus(), duration: time.Since(begun)}
			if status.Signaled() {
				result.Signal = int(status.Signal())
				result.ExitCode = signalBase + result.Signal
			}
			return result
		case <-expired:
			return Ending{ExitCode: outcome.CodeTimeout, TimedOut: true, duration: time.Since(begun)}
		case <-stop:
			return Ending{ExitCode: signalBase + int(unix.SIGKILL), Signal: int(unix.SIGKILL), Stopped: true, duration: time.Since(begun)}
		}
	}
}

func growPipe(writer *os.File) {
	// Beyond the user's quota the pipe keeps its size.
	_, _ = unix.FcntlInt(writer.Fd(), unix.F_SETPIPE_SZ, pipeBytes)
}
