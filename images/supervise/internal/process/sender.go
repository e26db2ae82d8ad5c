//go:build amd64 || arm64

package process

import (
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Values of firstSender; the handlers in assembly know them.
const (
	senderOutside = 1
	senderInside  = 2
)

const (
	signalSetBytes = 8 // size of the kernel's set of signals
	ignored        = 1 // SIG_IGN; SIG_DFL is 0
)

// action is the kernel's struct sigaction.
type action struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

var (
	// firstSender says who sent the first signal that noteSender saw; 0 before.
	firstSender uint32
	// goHandler is the address of the runtime's handler, where noteSender goes on.
	goHandler uintptr
	// noteSenderAddress is filled by the linker.
	noteSenderAddress uintptr
)

// noteSender is a signal handler. The siginfo of a signal from kill(2) has the code SI_USER (0) and,
// where the sender is in a PID namespace above ours, the sender 0. No process of our own namespace can
// send such a one: the kernel fills in what kill(2) sends, and rt_sigqueueinfo(2) refuses SI_USER.
//
// It is in assembly because os/signal does not hand the siginfo on, and a signalfd would need the
// signals blocked in every thread and unblocked in every command.
func noteSender()

// noteSenders puts noteSender before the runtime's handler of each of the signals. Nobody is known to
// have sent one that has no such handler because it is ignored.
func noteSenders(signals []os.Signal) {
	for _, each := range signals {
		number, isNumber := each.(syscall.Signal)
		var now action
		if !isNumber || sigaction(number, nil, &now) != 0 || now.handler <= ignored || now.handler == noteSenderAddress {
			continue
		}
		goHandler, now.handler = now.handler, noteSenderAddress
		_ = sigaction(number, &now, nil)
	}
}

func sigaction(number syscall.Signal, next, before *action) unix.Errno {
	_, _, fault := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(number), uintptr(unsafe.Pointer(next)),
		uintptr(unsafe.Pointer(before)), signalSetBytes, 0, 0)
	return fault
}

// wasStoppedFromOutside reports whether the first stop signal came from outside the PID namespace of this
// process, as those of a kubelet do.
func wasStoppedFromOutside() bool {
	return atomic.LoadUint32(&firstSender) == senderOutside
}
