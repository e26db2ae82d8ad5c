package run

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/untrusted"
)

// againAllowance is how long a program that was started a second time waits to be told to stop.
// A stop signal that comes before the program can take one is lost, and the kubelet would wait for
// the whole grace period.
const againAllowance = time.Second

// madeAllowance is how long another container may take to make a folder that this one needs.
const madeAllowance = 30 * time.Second

const madePause = 10 * time.Millisecond

var (
	errNotMade   = errors.New("the courier made no folders for this container")
	errAgain     = errors.New("started again after its commands had run; nothing is left to do")
	errDisturbed = errors.New("told to stop from inside the container")
)

// waitMade returns when each of the files and folders is there, whoever starts first; an empty name is
// none. It reports false when one was not made in time, or when this program was told to stop.
func waitMade(names []string, limit time.Duration, stop <-chan struct{}) bool {
	deadline := time.Now().Add(limit)
	for _, name := range names {
		for name != "" && os.IsNotExist(unix.Access(name, unix.F_OK)) {
			select {
			case <-stop:
				return false
			case <-time.After(madePause):
			}
			if time.Now().After(deadline) {
				return false
			}
		}
	}
	return true
}

// firstStart reports whether no earlier process took the mark away. It is an empty folder of
// another user, which nobody in this container can make again.
func firstStart(mark string) (bool, error) {
	var status unix.Stat_t
	err := unix.Lstat(mark, &status)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, &os.PathError{Op: "stat", Path: mark, Err: err}
	}
	if untrusted.KindOf(status) != unix.S_IFDIR || status.Uid == uint32(os.Getuid()) {
		return false, nil
	}
	if err := unix.Rmdir(mark); err != nil {
		return false, &os.PathError{Op: "rmdir", Path: mark, Err: err}
	}
	return true, nil
}

// waitAgain is all that a second start does: a native sidecar that ends is started again.
func waitAgain(stop <-chan struct{}) outcome.Message {
	select {
	case <-stop:
	case <-time.After(againAllowance):
	}
	return outcome.Failure(outcome.CodeStopped, errAgain)
}

// hold keeps a lock on a folder until this process ends; it tells the container that serves this
// one that nobody but its own commands can want it to stop.
func hold(name string) error {
	folder, err := untrusted.OpenFolder(name)
	if err != nil {
		return err
	}
	held = append(held, folder)
	// Where there are no locks, a stop from inside is like one of the kubelet: no pass either, unless
	// every answer was right.
	_ = unix.Flock(int(folder.Fd()), unix.LOCK_SH)
	return nil
}

// held keeps the descriptors of locks from being collected.
var held []*os.File

// watchOver returns a channel that closes with stop, and what tells then whether the holder of the
// folder's lock was still there. The kubelet ends a sidecar after the containers that it serves.
func watchOver(name string, stop <-chan struct{}) (<-chan struct{}, *atomic.Bool, error) {
	var disturbed atomic.Bool
	if name == "" {
		return stop, &disturbed, nil
	}
	folder, err := untrusted.OpenFolder(name)
	if err != nil {
		return nil, nil, err
	}
	told := make(chan struct{})
	go func() {
		<-stop
		err := unix.Flock(int(folder.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		disturbed.Store(errors.Is(err, unix.EWOULDBLOCK))
		close(told)
	}()
	return told, &disturbed, nil
}
