package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"securebench.dev/supervise/internal/outcome"
)

// needing is a fixture whose commands begin when another container has made the file "made".
func needing(t *testing.T, seconds float64) *fixture {
	f := newFixture(t)
	f.write("lane/placed", "")
	first, last := shell("test ! -e ../made; touch ../asked"), shell("test -e ../made && test -e placed")
	for _, one := range []map[string]any{first, last} {
		one["workdir"] = f.path("workspace")
	}
	f.spec["verdict"], f.spec["prechecks"] = true, []any{first}
	f.spec["copies"] = []any{map[string]any{"source": f.path("lane"), "to": f.path("workspace")}}
	f.spec["needs"], f.spec["needs_seconds"] = f.path("made"), seconds
	return f.phases(last)
}

func TestPhasesBeginWhenTheFileIsThere(t *testing.T) {
	f := needing(t, 20)
	running := f.start(f.command())
	f.waitFor("asked")
	if _, err := os.Stat(f.path("workspace/placed")); err == nil {
		t.Error("the candidate was brought before the file was there")
	}
	f.write("made", "")
	if got := f.finish(running); got.code != outcome.CodeDone {
		t.Errorf("code %d, %+v", got.code, got.message)
	}
}

func TestNothingRunsWithoutTheFile(t *testing.T) {
	f := needing(t, 0.2)
	got := f.run()
	if got.code != outcome.CodeOwnFault || !strings.Contains(got.message.Error, "no other container made "+f.path("made")+" within 0.2 seconds") {
		t.Errorf("code %d, %+v", got.code, got.message)
	}
	if _, err := os.Stat(f.path("workspace/placed")); err == nil {
		t.Error("the candidate was brought all the same")
	}
}

func TestStopEndsTheWaitForTheFile(t *testing.T) {
	f := needing(t, 60)
	running := f.start(f.command())
	f.waitFor("asked")
	if err := running.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := f.finish(running); !outcome.IsStopped(got.code) || got.took > 20*time.Second {
		t.Errorf("code %d after %v, %+v", got.code, got.took, got.message)
	}
}
