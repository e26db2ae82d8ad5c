package main

import (
	"net"
	"os"
	"testing"
	"time"

	"securebench.dev/supervise/internal/fixtures"
	"securebench.dev/supervise/internal/network"
	"securebench.dev/supervise/internal/outcome"
)

func TestCommandsWaitForTheirSidecar(t *testing.T) {
	address := fixtures.FreeAddress(t)
	f := newFixture(t)
	f.spec["awaits"] = []any{address}
	running := f.start(f.phases(shell("touch begun")).command())
	time.Sleep(100 * time.Millisecond)
	if _, err := os.Stat(f.path("begun")); err == nil {
		t.Error("the command began before the sidecar listened")
	}
	listener, err := net.Listen("tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if got := f.finish(running); got.code != outcome.CodeDone {
		t.Errorf("%+v", got.message)
	}
	if _, err := os.Stat(f.path("begun")); err != nil {
		t.Error("the command never began")
	}
}

func TestStopEndsTheWaitForASidecar(t *testing.T) {
	f := newFixture(t)
	f.spec["awaits"] = []any{fixtures.FreeAddress(t)}
	f.init = true
	running := f.start(f.phases(shell("touch begun")).command())
	time.Sleep(100 * time.Millisecond)
	_ = running.command.Process.Signal(os.Interrupt)
	if got := f.finish(running); got.code != outcome.CodeHalted {
		t.Errorf("%+v", got.message)
	}
	told := make(chan struct{})
	close(told)
	if network.WaitOpen([]string{fixtures.FreeAddress(t)}, told) {
		t.Error("nobody listens there")
	}
}

func TestSidecarsHaveAddresses(t *testing.T) {
	f := newFixture(t)
	f.spec["awaits"] = []any{"sidecar:8080"}
	if got := f.phases(shell("true")).run(); got.code != outcome.CodeOwnFault {
		t.Errorf("%+v", got.message)
	}
}
