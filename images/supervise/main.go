// Command supervise is PID 1 of every container that runs untrusted code.
// docs/reference/protocol.md fixes its interface; nothing here reads the environment or a file
// for instructions.
package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// terminationLog is where the kubelet reads the last message of a container.
var terminationLog = "/dev/termination-log"

// Exit codes: the whole verdict channel. Every other code is never a pass.
const (
	codeDone     = 0
	codeFailed   = 1
	codePhase    = 64 // plus the number of the phase that failed before the last
	codeStaging  = 90
	codeStopped  = 91
	codeOwnFault = 92
	codeNetwork  = 93
	codeTampered = 94 // the checks succeeded although a test was added that must fail; told to stop from inside
	codeUnfit    = 95 // what decides cannot work, found before the candidate was there
	codeTimeout  = 124
)

func main() {
	os.Exit(execute(os.Args, terminationLog))
}

// execute runs one subcommand and returns the exit code of the program.
func execute(args []string, log string) (code int) {
	defer func() {
		if fault := recover(); fault != nil {
			fmt.Fprintln(os.Stderr, "supervise: internal error:", fault)
			code = codeOwnFault
		}
	}()
	if len(args) != 4 || args[2] != "--spec" {
		fmt.Fprintln(os.Stderr, "usage: supervise copy|run|courier|egress-proxy|probe --spec JSON")
		return codeOwnFault
	}
	switch args[1] {
	case "copy":
		return supervised(args, log, copyTree)
	case "run":
		return supervised(args, log, run)
	case "egress-proxy":
		return egressProxy(args[3])
	case "courier":
		return courier(args[3], log)
	case "probe":
		return probe(args[3], log)
	default:
		fmt.Fprintf(os.Stderr, "supervise: unknown subcommand %q\n", args[1])
		return codeOwnFault
	}
}

// A job works until it is done or until stop is closed, whichever comes first.
type job func(spec string, stop <-chan struct{}) message

// supervised runs a job as a hardened process and leaves its message behind.
func supervised(args []string, log string, work job) int {
	// The kubelet made the file; held open, it cannot be exchanged by the command.
	target, err := os.OpenFile(log, os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, "supervise: no termination message:", err)
	}
	stop := watchStop()
	done := make(chan message, 1)
	go func() {
		defer func() {
			if fault := recover(); fault != nil {
				done <- failure(codeOwnFault, fmt.Errorf("internal error: %v", fault))
			}
		}()
		if err := shield(); err != nil {
			done <- failure(codeOwnFault, err)
			return
		}
		done <- work(args[3], stop)
	}()
	select {
	case result := <-done:
		return conclude(target, result)
	case <-stop:
	}
	// A running phase ends by itself on stop; staging is simply abandoned.
	select {
	case result := <-done:
		return conclude(target, result)
	case <-time.After(stopAllowance):
		return conclude(target, failure(codeStopped, errStopped))
	}
}

// conclude writes the termination message, the last act of the process.
func conclude(target *os.File, result message) int {
	if target != nil {
		// Without the message the exit code still says everything that counts.
		_ = target.Truncate(0)
		_, _ = target.WriteAt(result.encode(), 0)
		_ = target.Close()
	}
	return result.Code
}
