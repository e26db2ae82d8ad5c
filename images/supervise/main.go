// Command supervise is PID 1 of every container that runs untrusted code.
// docs/reference/protocol.md fixes its interface; nothing here reads the environment or a file
// for instructions.
package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/canary"
	"securebench.dev/supervise/internal/courier"
	"securebench.dev/supervise/internal/egress"
	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/process"
	"securebench.dev/supervise/internal/run"
	"securebench.dev/supervise/internal/staging"
)

// terminationLog is where the kubelet reads the last message of a container.
var terminationLog = "/dev/termination-log"

func main() {
	os.Exit(execute(os.Args, terminationLog))
}

// execute runs one subcommand and returns the exit code of the program.
func execute(args []string, log string) (code int) {
	defer func() {
		if fault := recover(); fault != nil {
			fmt.Fprintln(os.Stderr, "supervise: internal error:", fault)
			code = outcome.CodeOwnFault
		}
	}()
	if len(args) != 4 || args[2] != "--spec" {
		fmt.Fprintln(os.Stderr, "usage: supervise copy|run|courier|egress-proxy|probe --spec JSON")
		return outcome.CodeOwnFault
	}
	switch args[1] {
	case "copy":
		return supervised(args, log, staging.Copy)
	case "run":
		return supervised(args, log, run.Run)
	case "egress-proxy":
		return egress.Proxy(args[3], log)
	case "courier":
		return courier.Run(args[3], log)
	case "probe":
		return canary.Probe(args[3], log)
	default:
		fmt.Fprintf(os.Stderr, "supervise: unknown subcommand %q\n", args[1])
		return outcome.CodeOwnFault
	}
}

// A job works until it is done or until stop is closed, whichever comes first.
type job func(spec string, stop <-chan struct{}) outcome.Message

// supervised runs a job as a hardened process and leaves its message behind.
func supervised(args []string, log string, work job) int {
	// The kubelet made the file; held open, it cannot be exchanged by the command.
	target, err := os.OpenFile(log, os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, "supervise: no termination message:", err)
	}
	stop := process.WatchStop()
	done := make(chan outcome.Message, 1)
	go func() {
		defer func() {
			if fault := recover(); fault != nil {
				done <- outcome.Failure(outcome.CodeOwnFault, fmt.Errorf("internal error: %v", fault))
			}
		}()
		if err := process.Shield(); err != nil {
			done <- outcome.Failure(outcome.CodeOwnFault, err)
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
	case <-time.After(process.StopAllowance):
		return conclude(target, outcome.Failure(process.StopCode(), outcome.ErrStopped))
	}
}

// conclude writes the termination message, the last act of the process.
func conclude(target *os.File, result outcome.Message) int {
	if target != nil {
		// Without the message the exit code still says everything that counts.
		_ = target.Truncate(0)
		_, _ = target.WriteAt(result.Encode(), 0)
		_ = target.Close()
	}
	return result.Code
}
