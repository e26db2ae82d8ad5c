package process

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// unguarded is what a check's stderr ends with where the node forbids the guard.
	unguarded = "securebench: the memory of this check is not guarded: "

	siCode    = 8  // offset of si_code in siginfo
	siPid     = 16 // offset of si_pid
	infoBytes = 128
)

var (
	errGone     = errors.New("the process ended")
	errUntraced = errors.New("no process may be traced here")
)

// guard keeps what a check starts from reading and changing the process that decides: programs of
// the candidate have its user. It traces that one process, none of its children, and makes it
// undumpable at each execution of a program; then /proc/<pid>/mem, ptrace and process_vm_writev are
// closed to every process without CAP_SYS_PTRACE, also where Yama is missing. The thread that
// started the process has to use it.
type guard struct {
	pid   int
	stops chan unix.WaitStatus
	first chan unix.WaitStatus
	fault error // why the process is not guarded since its last execution, or nil
}

// handle lets a stopped process go on, undumpable when it has just begun a program.
func (g *guard) handle(status unix.WaitStatus) {
	signal := int(status.StopSignal())
	if signal == int(unix.SIGTRAP) && g.hasBegun() {
		signal, g.fault = 0, g.hide()
	}
	// It fails when the process was killed meanwhile.
	_ = unix.PtraceCont(g.pid, signal)
}

// hasBegun tells the trap of an execution, which the kernel sends in the process's own name, from
// breakpoints and from traps that others send. One that a process sends to itself is lost.
func (g *guard) hasBegun() bool {
	var info [infoBytes]byte
	_, _, fault := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GETSIGINFO, uintptr(g.pid), 0, uintptr(unsafe.Pointer(&info)), 0, 0)
	code := *(*int32)(unsafe.Pointer(&info[siCode]))
	sender := *(*int32)(unsafe.Pointer(&info[siPid]))
	return fault == 0 && code == 0 && int(sender) == g.pid
}

// next waits for the next stop of the process.
func (g *guard) next() error {
	select {
	case status := <-g.stops:
		if status.StopSignal() != unix.SIGTRAP {
			return errors.New("a signal came in between")
		}
		return nil
	case status := <-g.first:
		g.first <- status
		return errGone
	}
}
