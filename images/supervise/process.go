package main

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stopAllowance is the time from SIGTERM to the end: the kubelet gives the courier only
	// two seconds once the grace period has passed.
	stopAllowance = 800 * time.Millisecond
	// stopKill is the part of it in which the processes must be gone.
	stopKill = 400 * time.Millisecond
	// killAllowance bounds the waiting for processes that the kernel cannot end (a dead volume).
	killAllowance = 20 * time.Second
	// killPause lies between two rounds of ending processes.
	killPause = 2 * time.Millisecond

	signalBase = 128
)

// ending is how a phase ended.
type ending struct {
	exitCode int
	signal   int
	timedOut bool
	stopped  bool
	refused  bool   // the command could not be started
	fault    string // why the command could not be started, or did not complete
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
func runPhase(phase phaseSpec, environment []string, kept [2]*capture, stop <-chan struct{}) (ending, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return ending{}, err
	}
	defer null.Close()
	return runCommand(phase, environment, null, kept, stop)
}

// runCommand is runPhase with a file as standard input.
func runCommand(phase phaseSpec, environment []string, input *os.File, kept [2]*capture, stop <-chan struct{}) (ending, error) {
	stdout, err := newPipe(kept[0])
	if err != nil {
		return ending{}, err
	}
	defer stdout.close()
	stderr, err := newPipe(kept[1])
	if err != nil {
		return ending{}, err
	}
	defer stderr.close()
	begun := time.Now()
	completion, err := newProof(phase.Proof != "")
	if err != nil {
		return ending{}, err
	}
	defer completion.close()
	files := append([]uintptr{input.Fd(), stdout.writer.Fd(), stderr.writer.Fd()}, completion.files()...)
	pid, err := start(phase, environment, files)
	completion.started()
	var refused *startError
	if errors.As(err, &refused) {
		return ending{exitCode: refused.exitCode, refused: true, fault: refused.text}, nil
	}
	if err != nil {
		return ending{}, err
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
	if result.stopped {
		allowance = stopKill
	}
	ended := below.endAll(allowance)
	stdout.finish()
	stderr.finish()
	if watch.fault != nil {
		kept[1].add([]byte(unguarded + watch.fault.Error() + "\n"))
	}
	if !result.stopped && !result.timedOut && !completion.holds() {
		result.fault = phase.Proof
		kept[1].add([]byte("securebench: " + phase.Proof + "\n"))
	}
	if !ended && !result.stopped {
		return result, errors.New("processes are left that cannot be ended")
	}
	return result, nil
}

// wait returns when the command ended, its time is over or the process is told to stop.
func wait(watch *guard, begun time.Time, limit *float64, stop <-chan struct{}) ending {
	var expired <-chan time.Time
	if limit != nil {
		expired = time.After(time.Until(begun.Add(duration(*limit))))
	}
	for {
		select {
		case status := <-watch.stops:
			watch.handle(status)
		case status := <-watch.first:
			result := ending{exitCode: status.ExitStatus(), duration: time.Since(begun)}
			if status.Signaled() {
				result.signal = int(status.Signal())
				result.exitCode = signalBase + result.signal
			}
			return result
		case <-expired:
			return ending{exitCode: codeTimeout, timedOut: true, duration: time.Since(begun)}
		case <-stop:
			return ending{exitCode: signalBase + int(unix.SIGKILL), signal: int(unix.SIGKILL), stopped: true, duration: time.Since(begun)}
		}
	}
}

// duration converts a positive number of seconds; what is too long for the type never passes.
func duration(limit float64) time.Duration {
	const longest = 1 << 33 // seconds, about 270 years
	return time.Duration(min(limit, longest) * float64(time.Second))
}

func growPipe(writer *os.File) {
	// Beyond the user's quota the pipe keeps its size.
	_, _ = unix.FcntlInt(writer.Fd(), unix.F_SETPIPE_SZ, pipeBytes)
}
