package main

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"securebench.dev/supervise/internal/fixtures"
	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/process"
)

func TestExitCodes(t *testing.T) {
	cases := map[string]struct {
		verdict  bool
		phases   []map[string]any
		want     int
		wantExit int
		wantName string
	}{
		"a harness that ends with 0":          {false, []map[string]any{shell("exit 0")}, 0, 0, "main"},
		"a harness that fails":                {false, []map[string]any{shell("exit 3")}, 0, 3, "main"},
		"a harness that imitates our codes":   {false, []map[string]any{shell("exit 91")}, 0, 91, "main"},
		"a check that passes":                 {true, []map[string]any{shell("true")}, 0, 0, "main"},
		"a check that fails":                  {true, []map[string]any{shell("exit 7")}, 1, 7, "main"},
		"a check that is killed":              {true, []map[string]any{shell("kill -9 $$")}, 1, 137, "main"},
		"a check that does not exist":         {true, []map[string]any{phase("check", nil, "no-such-program")}, 1, 127, "check"},
		"a check with a missing path":         {true, []map[string]any{phase("check", nil, "/no/such/program")}, 1, 127, "check"},
		"a check that is a folder":            {true, []map[string]any{phase("check", nil, "/proc")}, 1, 126, "check"},
		"the first phase fails":               {true, []map[string]any{phase("setup", nil, "false"), shell("true")}, 64, 1, "setup"},
		"the second phase fails":              {true, []map[string]any{shell("true"), phase("patch", nil, "false"), shell("true")}, 65, 1, "patch"},
		"an early phase fails in a harness":   {false, []map[string]any{shell("exit 5"), shell("true")}, 64, 5, "main"},
		"the time limit of the last phase":    {true, []map[string]any{phase("main", 0.2, "sleep", "60")}, 124, 124, "main"},
		"the time limit of an earlier phase":  {true, []map[string]any{phase("setup", 0.2, "sleep", "60"), shell("true")}, 124, 124, "setup"},
		"a harness that reaches its limit":    {false, []map[string]any{shell("true"), phase("main", 0.2, "sleep", "60")}, 124, 124, "main"},
		"an early limit in a harness":         {false, []map[string]any{phase("preflight", 0.2, "sleep", "60"), shell("true")}, 64, 124, "preflight"},
		"all phases succeed":                  {true, []map[string]any{shell("true"), shell("true")}, 0, 0, "main"},
		"a check that returns the limit code": {true, []map[string]any{shell("exit 124")}, 1, 124, "main"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t).phases(test.phases...)
			f.spec["verdict"] = test.verdict
			got := f.run()
			if got.code != test.want || got.message.ExitCode != test.wantExit || got.message.Phase != test.wantName {
				t.Errorf("got code %d, %+v", got.code, got.message)
			}
			if got.message.TimedOut != (test.wantExit == outcome.CodeTimeout && test.want != outcome.CodeFailed) {
				t.Errorf("timed_out is %v", got.message.TimedOut)
			}
		})
	}
}

func TestMessageNamesTheSignalAndTheFault(t *testing.T) {
	if got := newFixture(t).phases(shell("kill -15 $$")).run(); got.message.Signal != 15 || got.message.ExitCode != 143 {
		t.Errorf("got %+v", got.message)
	}
	if got := newFixture(t).phases(phase("x", nil, "no-such-program")).run(); !strings.Contains(got.message.Error, "no-such-program") {
		t.Errorf("got %+v", got.message)
	}
	missing := phase("x", nil, "true")
	missing["workdir"] = "/no/such/folder"
	if got := newFixture(t).phases(missing).run(); got.message.ExitCode != 126 || !strings.Contains(got.message.Error, "/no/such/folder") {
		t.Errorf("got %+v", got.message)
	}
}

func TestPhaseGetsItsSurroundings(t *testing.T) {
	f := newFixture(t)
	t.Setenv("FROM_IMAGE", "image")
	t.Setenv("REPLACED", "image")
	one := shell(`printf '%s|%s|%s|%s|%s' "$PWD" "$FROM_IMAGE" "$REPLACED" "$HOME" "$(cat)"`)
	one["workdir"] = f.path("workspace")
	one["env"] = map[string]any{"REPLACED": "phase"}
	f.spec["home"] = f.path("home")
	f.phases(one).run()
	want := f.path("workspace") + "|image|phase|" + f.path("home") + "|"
	if got := f.read("output/stdout"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestProgramsBesideTheImage(t *testing.T) {
	own, image := t.TempDir(), t.TempDir()
	for _, place := range []string{own + "/both", own + "/only-ours", image + "/both"} {
		if err := os.WriteFile(place, []byte("#!/bin/sh\necho "+place+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct{ path, want string }{
		"the image's program comes first": {image + ":/usr/bin:/bin", image + "/both\n" + own + "/only-ours\n"},
		"an image without a PATH":         {"", own + "/both\n" + own + "/only-ours\n"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", test.path)
			if test.path == "" {
				os.Unsetenv("PATH")
			}
			started := phase("main", nil, "/bin/sh", "-c", "both; only-ours")
			started["search"] = []string{own}
			f := newFixture(t).phases(started)
			if got := f.run(); got.code != outcome.CodeDone || f.read("output/stdout") != test.want {
				t.Errorf("got code %d, %q", got.code, f.read("output/stdout"))
			}
		})
	}
}

func TestStandardInputIsEmpty(t *testing.T) {
	// Codex waits for the end of an open one.
	f := newFixture(t).phases(phase("main", 5, "cat"))
	if got := f.run(); got.code != outcome.CodeDone || f.read("output/stdout") != "" {
		t.Errorf("got code %d, %+v", got.code, got.message)
	}
}

func TestCommandStartsWithCleanSignalsAndNoPrivileges(t *testing.T) {
	f := newFixture(t).phases(shell("grep -E 'SigBlk|SigIgn|NoNewPrivs' /proc/self/status; ls /proc/self/fd"))
	f.run()
	// Signals 32 and 33 are the C library's own; who started these tests may have left them ignored.
	reserved := regexp.MustCompile(`SigIgn:\t0{7}[01][08]0{7}\n`)
	got := reserved.ReplaceAllString(f.read("output/stdout"), "SigIgn:\t0000000000000000\n")
	for _, want := range []string{"SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000", "NoNewPrivs:\t1"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
	if fds := strings.Fields(got[strings.Index(got, "NoNewPrivs:\t1")+len("NoNewPrivs:\t1"):]); len(fds) != 4 {
		t.Errorf("open descriptors %v, want 0, 1, 2 and the one of ls", fds)
	}
}

func TestScriptWithoutInterpreterLineRunsBySh(t *testing.T) {
	f := newFixture(t)
	f.write("script", "echo by sh $1\n")
	if err := os.Chmod(f.path("script"), 0o755); err != nil {
		t.Fatal(err)
	}
	f.phases(phase("main", nil, f.path("script"), "one")).run()
	if got := f.read("output/stdout"); got != "by sh one\n" {
		t.Errorf("got %q", got)
	}
}

// Every process must be gone: daemons, those that ignore signals, those that hold the pipe.
const daemons = `
for i in 1 2 3; do
  setsid sh -c 'trap "" TERM HUP INT; (trap "" TERM; while :; do date +%s%N > alive; sleep 0.01; done) & wait' &
done
while [ ! -s alive ]; do sleep 0.01; done
`

func TestNoProcessOutlivesTheCommand(t *testing.T) {
	for _, isInit := range []bool{false, true} {
		for name, last := range map[string]map[string]any{
			"normal end": shell(daemons + "exit 0"),
			"time limit": phase("main", 1.5, "sh", "-c", daemons+"wait"),
		} {
			t.Run(fmt.Sprintf("%s, init %v", name, isInit), func(t *testing.T) {
				f := newFixture(t)
				f.init = isInit
				last["workdir"] = f.path("workspace")
				got := f.phases(last).run()
				if got.took > 15*time.Second {
					t.Errorf("took %v", got.took)
				}
				before := f.read("workspace/alive")
				time.Sleep(60 * time.Millisecond)
				if after := f.read("workspace/alive"); after != before {
					t.Error("a process still writes")
				}
			})
		}
	}
}

func TestForkBombEnds(t *testing.T) {
	f := newFixture(t)
	f.init = true
	f.become(64123)
	f.spec["max_processes"] = 150
	bomb := phase("main", 1.0, "sh", "-c", `echo up; exec 2>/dev/null; b() { b & b & sleep 1; }; b & exec sleep 60`)
	got := f.phases(bomb).run()
	if got.code != outcome.CodeTimeout || got.took > 10*time.Second || f.read("output/stdout") != "up\n" {
		t.Errorf("code %d after %v", got.code, got.took)
	}
}

func TestOutputIsBounded(t *testing.T) {
	const size = 100_000_000
	f := newFixture(t)
	f.spec["streams"] = map[string]any{"folder": f.path("output"), "head_bytes": 1000, "tail_bytes": 500}
	got := f.phases(shell(fmt.Sprintf("printf first; head -c %d /dev/zero; printf last; echo oops >&2", size))).run()
	if got.message.StdoutBytes != size+9 || got.message.StderrBytes != 5 {
		t.Errorf("got %+v", got.message)
	}
	head, tail := f.read("output/stdout"), f.read("output/stdout.tail")
	if len(head) != 1000 || !strings.HasPrefix(head, "first") || len(tail) != 500 || !strings.HasSuffix(tail, "\x00last") {
		t.Errorf("kept %d and %d bytes", len(head), len(tail))
	}
	if f.read("output/stderr") != "oops\n" || f.read("output/stderr.tail") != "" {
		t.Error("stderr is not complete")
	}
	if got.took > 20*time.Second {
		t.Errorf("took %v", got.took)
	}
}

func TestPartialOutputIsKeptAtTheTimeLimit(t *testing.T) {
	f := newFixture(t)
	f.phases(phase("main", 0.5, "sh", "-c", "echo begun; sleep 60")).run()
	if f.read("output/stdout") != "begun\n" {
		t.Error("partial output is lost")
	}
	if report := f.read("output/report.json"); !strings.Contains(report, `"timed_out":true`) {
		t.Errorf("report %q", report)
	}
}

func TestStop(t *testing.T) {
	// Without a namespace of its own this test's process is one of its neighbours.
	for isInit, want := range map[bool]int{false: outcome.CodeStopped, true: outcome.CodeHalted} {
		t.Run(fmt.Sprintf("init %v", isInit), func(t *testing.T) {
			f := newFixture(t)
			f.init = isInit
			one := shell(`trap "" TERM; echo up; : > up; sleep 60 & wait; sleep 60`)
			one["workdir"] = f.path("workspace")
			running := f.start(f.phases(one).command())
			f.waitFor("workspace/up")
			told := time.Now()
			if err := running.command.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			got := f.finish(running)
			if took := time.Since(told); got.code != want || took > time.Second {
				t.Errorf("code %d after %v", got.code, took)
			}
			if f.read("output/stdout") != "up\n" {
				t.Error("partial output is lost")
			}
		})
	}
}

func TestSidecarStaysWhenItsCommandHasEnded(t *testing.T) {
	f := newFixture(t).phases(shell("exit 3"))
	f.spec["linger"] = true
	running := f.start(f.command())
	f.waitFor("output/report.json")
	ended := make(chan result, 1)
	go func() { ended <- f.finish(running) }()
	select {
	case got := <-ended:
		t.Fatalf("it ended with %d", got.code)
	case <-time.After(100 * time.Millisecond):
	}
	if err := running.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := <-ended; got.code != outcome.CodeDone || got.message.ExitCode != 3 {
		t.Errorf("got code %d, %+v", got.code, got.message)
	}
}

func TestCommandCannotEndPid1(t *testing.T) {
	f := newFixture(t)
	f.init = true
	// SIGKILL and SIGSTOP never reach PID 1 from inside, the others are dropped.
	got := f.phases(shell("for s in 1 4 5 6 7 8 10 11 12 13 14 16 19 9 17 18 20 23 29 31 32 33 34 64; do kill -$s 1 || exit 9; done; sleep 0.3; exit 5")).run()
	if got.code != outcome.CodeDone || got.message.ExitCode != 5 {
		t.Errorf("code %d, %+v", got.code, got.message)
	}
}

func TestCommandThatStopsPid1IsNoPass(t *testing.T) {
	f := newFixture(t)
	f.init = true
	f.spec["verdict"] = true
	if got := f.phases(shell("kill -TERM 1; sleep 60")).run(); got.code != outcome.CodeStopped {
		t.Errorf("code %d", got.code)
	}
}

func TestCommandCannotReadPid1(t *testing.T) {
	if os.Getuid() == 0 {
		t.Log("as root with capabilities only the dumpable flag is seen")
	}
	f := newFixture(t).phases(shell("stat -c %u /proc/$PPID/mem"))
	f.run()
	if got := strings.TrimSpace(f.read("output/stdout")); got != "0" {
		t.Errorf("/proc/PID/mem of the supervisor belongs to %q, a process that is not dumpable belongs to root", got)
	}
}

func TestStreamsReplaceWhatTheCommandPutThere(t *testing.T) {
	f := newFixture(t)
	f.write("guarded", "untouched")
	script := `cd "$1"; rm -f stdout; ln -s ../guarded stdout; mkdir -p stderr.tail/x; ln -sf ../guarded report.json; ln -s ../guarded stdout.tail; chmod 0 . ; echo real`
	f.phases(phase("main", nil, "sh", "-c", script, "sh", f.path("output"))).run()
	if got := f.read("output/stdout"); got != "real\n" {
		t.Errorf("stdout is %q", got)
	}
	if f.read("guarded") != "untouched" {
		t.Error("a link was followed")
	}
	if !strings.HasPrefix(f.read("output/report.json"), `{"v":1,`) || f.read("output/stderr.tail") != "" {
		t.Error("report or tail is not ours")
	}
}

func TestCommandCannotWriteTheMessage(t *testing.T) {
	f := newFixture(t)
	one := shell(`rm "$LOG"; echo '{"v":1,"code":0,"forged":true}' > "$LOG"; ln -sf /etc/passwd report.json; exit 1`)
	one["env"] = map[string]any{"LOG": f.path("log")}
	f.spec["verdict"] = true
	running := f.start(f.phases(one).command())
	_ = running.command.Wait()
	if code := running.command.ProcessState.ExitCode(); code != outcome.CodeFailed {
		t.Errorf("code %d", code)
	}
}

func TestStagingFailures(t *testing.T) {
	f := newFixture(t)
	f.write("lane/a", "a")
	f.spec["lanes"] = []any{map[string]any{"path": f.path("lane"), "digest": "sha256:00"}}
	if got := f.phases(shell("exit 0")).run(); got.code != outcome.CodeStaging || !strings.Contains(got.message.Error, "digest") {
		t.Errorf("digest: %+v", got.message)
	}
	f = newFixture(t)
	f.spec["copies"] = []any{map[string]any{"source": f.path("nowhere"), "to": f.path("workspace")}}
	if got := f.phases(shell("exit 0")).run(); got.code != outcome.CodeStaging {
		t.Errorf("copy: %+v", got.message)
	}
	f = newFixture(t)
	f.spec["surprise"] = 1
	if got := f.phases(shell("exit 0")).run(); got.code != outcome.CodeOwnFault {
		t.Errorf("specification: %+v", got.message)
	}
}

func TestProbes(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t)
	f.spec["probes"] = []any{listener.Addr().String()}
	f.spec["probe_timeout_seconds"] = 0.3
	if got := f.phases(shell("true")).run(); got.code != outcome.CodeNetwork {
		t.Errorf("open: %+v", got.message)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if got := f.run(); got.code != outcome.CodeDone {
		t.Errorf("closed: %+v", got.message)
	}
	f.spec["probes"] = []any{"kubernetes.default:443"}
	if got := f.run(); got.code != outcome.CodeOwnFault {
		t.Errorf("a name: %+v", got.message)
	}
}

func TestNetworkThatOpensMeanwhile(t *testing.T) {
	address := fixtures.FreeAddress(t)
	f := newFixture(t)
	f.spec["probes"] = []any{address}
	begun, opened := f.path("begun"), f.path("opened")
	f.phases(shell(fmt.Sprintf("touch %s; until [ -e %s ]; do sleep 0.01; done", begun, opened)))
	go func() {
		for _, missing := os.Stat(begun); missing != nil; _, missing = os.Stat(begun) {
			time.Sleep(time.Millisecond)
		}
		if _, err := net.Listen("tcp", address); err == nil {
			_ = os.WriteFile(opened, nil, 0o600)
		}
	}()
	if got := f.run(); got.code != outcome.CodeNetwork {
		t.Errorf("opened while the command ran: %+v", got.message)
	}
}

func TestProcessLimit(t *testing.T) {
	f := newFixture(t)
	f.spec["max_processes"] = 100
	f.phases(shell("ulimit -p")).run()
	if got := strings.TrimSpace(f.read("output/stdout")); got != fmt.Sprint(100+process.RuntimeThreads) {
		t.Errorf("limit is %q", got)
	}
}

func TestMessageSaysThatACommandWasNeverStarted(t *testing.T) {
	cases := map[string]struct {
		phase map[string]any
		want  bool
	}{
		"no such program":           {phase("x", nil, "no-such-program"), true},
		"a folder":                  {phase("x", nil, "/proc"), true},
		"a shell that ends so":      {shell("exit 127"), false},
		"a program that runs":       {shell("true"), false},
		"a shell without a program": {shell("no-such-program"), false},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if got := newFixture(t).phases(test.phase).run(); got.message.Unstarted != test.want {
				t.Errorf("got %+v", got.message)
			}
		})
	}
}
