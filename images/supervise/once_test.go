package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/outcome"
)

// aSidecar is a fixture that serves a container; the mark and the lock's folder are another user's.
func aSidecar(t *testing.T, script string) *fixture {
	f := newFixture(t)
	f.init = true
	f.become(64123)
	for _, name := range []string{"first", "served"} {
		if err := os.Mkdir(f.path(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	one := shell(script)
	one["workdir"] = f.path("workspace")
	f.spec["linger"], f.spec["once"], f.spec["serves"] = true, f.path("first"), f.path("served")
	return f.phases(one)
}

// serve locks the folder as the container does that the sidecar serves.
func (f *fixture) serve() *os.File {
	f.t.Helper()
	folder, err := os.Open(f.path("served"))
	if err != nil {
		f.t.Fatal(err)
	}
	if err := unix.Flock(int(folder.Fd()), unix.LOCK_SH); err != nil {
		f.t.Fatal(err)
	}
	return folder
}

func TestStopFromInsideIsTampering(t *testing.T) {
	// The folder's name is no protection, and is not needed either.
	f := aSidecar(t, "mkdir again; rm -rf ../served; kill -TERM 1; sleep 60")
	defer f.serve().Close()
	got := f.run()
	if got.code != outcome.CodeTampered || got.took > 2*time.Second || !strings.Contains(got.message.Error, "from inside") {
		t.Errorf("code %d after %v, %+v", got.code, got.took, got.message)
	}
}

func TestStopOfTheKubeletIsNone(t *testing.T) {
	for name, script := range map[string]string{"while the command runs": ": > up; sleep 60", "after it": ": > up"} {
		t.Run(name, func(t *testing.T) {
			f := aSidecar(t, script)
			lock := f.serve()
			running := f.start(f.command())
			f.waitFor("workspace/up")
			_ = lock.Close()
			if err := running.command.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if got := f.finish(running); got.code != outcome.CodeHalted && got.code != outcome.CodeDone {
				t.Errorf("code %d, %+v", got.code, got.message)
			}
		})
	}
}

// No signal is sent: the one of the kubelet came too early to be taken.
func TestSecondStartEndsByItself(t *testing.T) {
	for name, remake := range map[string]string{
		"no mark": "true", "a mark of the command's": "mkdir ../first",
		"a mark of another kind": "ln -s /proc/1 ../first",
	} {
		t.Run(name, func(t *testing.T) {
			f := aSidecar(t, remake+"; echo x >> runs; kill -TERM 1; sleep 60")
			if got := f.run(); got.code != outcome.CodeStopped {
				t.Fatalf("code %d, %+v", got.code, got.message)
			}
			again := f.run()
			if again.code != outcome.CodeStopped || again.took < time.Second || again.took > 3*time.Second {
				t.Errorf("code %d after %v", again.code, again.took)
			}
			if got := f.read("workspace/runs"); got != "x\n" {
				t.Errorf("the command ran %q", got)
			}
		})
	}
}

// The courier starts first, but nobody waits until it runs.
func TestFoldersOfTheCourierAreWaitedFor(t *testing.T) {
	f := aSidecar(t, ": > up")
	for _, name := range []string{"first", "served"} {
		if err := os.Remove(f.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	running := f.start(f.command())
	time.Sleep(100 * time.Millisecond)
	if _, err := os.Stat(f.path("workspace/up")); err == nil {
		t.Error("the command did not wait")
	}
	for _, name := range []string{"first", "served"} {
		if err := os.Mkdir(f.path(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f.waitFor("workspace/up")
	_ = running.command.Process.Signal(syscall.SIGTERM)
	// The shell that made the file may not have ended yet.
	if got := f.finish(running); got.code != outcome.CodeDone && got.code != outcome.CodeHalted {
		t.Errorf("code %d, %+v", got.code, got.message)
	}
}

func TestHolderIsSeen(t *testing.T) {
	f := newFixture(t)
	one := shell(": > up; sleep 60")
	one["workdir"] = f.path("workspace")
	f.spec["holds"] = f.path("lane")
	running := f.start(f.phases(one).command())
	f.waitFor("workspace/up")
	folder, err := os.Open(f.path("lane"))
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	lock := func() error { return unix.Flock(int(folder.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
	if err := lock(); err != unix.EWOULDBLOCK {
		t.Errorf("locked while it is held: %v", err)
	}
	_ = running.command.Process.Signal(syscall.SIGTERM)
	f.finish(running)
	if err := lock(); err != nil {
		t.Errorf("still held: %v", err)
	}
}
