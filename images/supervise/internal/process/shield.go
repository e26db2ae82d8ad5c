package process

import (
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/outcome"
)

const (
	// spareThreads exist before a command starts: a fork bomb that uses up the process limit
	// must not keep the Go runtime from making the thread that ends it.
	spareThreads = 12

	firstInherited = 3
)

// stopSignals end the run. An image may declare another stop signal than SIGTERM; these are
// the ones in use (SIGRTMIN+3 is that of systemd). A command can send one of these to end its own
// run, so it counts who sent the first one.
var stopSignals = []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGWINCH, unix.Signal(37)}

// Shield hardens the process: nothing below gains privileges, nobody of the same user may trace
// it, orphans become its children. The calling goroutine must be the one that starts commands:
// no_new_privs belongs to its thread.
func Shield() error {
	runtime.LockOSThread()
	runtime.GOMAXPROCS(2)
	makeThreads(spareThreads)
	unix.Umask(0o022)
	// The runtime leaves nothing open; what somebody else left must not reach a command.
	_ = unix.CloseRange(firstInherited, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	for name, option := range map[string][2]int{
		"no_new_privs": {unix.PR_SET_NO_NEW_PRIVS, 1},
		"dumpable":     {unix.PR_SET_DUMPABLE, 0},
		"subreaper":    {unix.PR_SET_CHILD_SUBREAPER, 1},
	} {
		if err := unix.Prctl(option[0], uintptr(option[1]), 0, 0, 0); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// makeThreads makes the runtime own that many threads; it keeps idle ones for later.
func makeThreads(count int) {
	ready := make(chan struct{}, count)
	release := make(chan struct{})
	for range count {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready <- struct{}{}
			<-release
		}()
	}
	for range count {
		<-ready
	}
	close(release)
}

// WatchStop returns a channel that is closed at the first stop signal. Every other signal that
// a process sends is taken and dropped, also those that stand for faults: by default the Go
// runtime would end the program.
func WatchStop() <-chan struct{} {
	noteSenders(stopSignals)
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored)
	go func() {
		for range ignored {
			continue
		}
	}()
	told := make(chan os.Signal, 1)
	signal.Notify(told, stopSignals...)
	stop := make(chan struct{})
	go func() {
		<-told
		close(stop)
	}()
	return stop
}

// StopCode is the exit code of what was told to stop. Commands run as our user and may send the signal
// too, so only one from outside excuses a launch.
func StopCode() int {
	if wasStoppedFromOutside() {
		return outcome.CodeHalted
	}
	return outcome.CodeStopped
}
