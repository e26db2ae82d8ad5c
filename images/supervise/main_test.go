package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"securebench.dev/supervise/internal/outcome"
)

// helperLog makes the test binary act as the program, with its termination message there.
const helperLog = "SUPERVISE_TEST_LOG"

func TestMain(m *testing.M) {
	if forgers := os.Getenv(helperForger); forgers != "" {
		os.Exit(forge(forgers))
	}
	if log, set := os.LookupEnv(helperLog); set {
		os.Exit(execute(os.Args, log))
	}
	os.Exit(m.Run())
}

// fixture is a container made of folders.
type fixture struct {
	t    *testing.T
	root string
	spec map[string]any
	init bool // PID 1 of a namespace of its own
	user uint32
	bare bool // root without any capability
}

type result struct {
	code    int
	message outcome.Message
	raw     []byte
	took    time.Duration
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, root: t.TempDir()}
	for _, name := range []string{"workspace", "output", "lane"} {
		if err := os.Mkdir(f.path(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f.spec = map[string]any{
		"version": 1, "verdict": false, "lanes": []any{}, "candidate": nil, "copies": []any{},
		"protected": []any{}, "home": "", "temporary": "", "max_processes": 0,
		"streams":    map[string]any{"folder": f.path("output"), "head_bytes": 1 << 20, "tail_bytes": 1 << 19},
		"open_modes": []any{f.path("workspace"), f.path("output")},
		"probes":     []any{}, "probe_timeout_seconds": 1,
	}
	return f
}

func (f *fixture) path(name string) string { return filepath.Join(f.root, name) }

func phase(name string, limit any, command ...string) map[string]any {
	return map[string]any{"name": name, "command": command, "workdir": "", "timeout_seconds": limit, "env": map[string]any{}}
}

func shell(script string) map[string]any { return phase("main", nil, "sh", "-c", script) }

func (f *fixture) phases(phases ...map[string]any) *fixture {
	f.spec["phases"] = phases
	return f
}

func (f *fixture) command() *exec.Cmd {
	f.t.Helper()
	text, err := json.Marshal(f.spec)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.program("run", string(text))
}

func (f *fixture) program(mode, spec string) *exec.Cmd {
	f.t.Helper()
	log := f.path("log")
	if err := os.WriteFile(log, bytes.Repeat([]byte("old "), 2000), 0o644); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Chmod(log, 0o666); err != nil {
		f.t.Fatal(err)
	}
	args := []string{"/proc/self/exe", mode, "--spec", spec}
	if f.bare {
		args[0], _ = os.Executable()
		args = append([]string{"setpriv", "--bounding-set=-all", "--inh-caps=-all"}, args...)
	}
	command := exec.Command(args[0], args[1:]...)
	command.Env = append(os.Environ(), helperLog+"="+log)
	command.Stderr = os.Stderr
	command.Dir = f.root
	command.SysProcAttr = &syscall.SysProcAttr{}
	if f.user != 0 {
		command.Path = f.path("program")
		command.SysProcAttr.Credential = &syscall.Credential{Uid: f.user, Gid: f.user}
	}
	if f.init {
		command.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
		if os.Getuid() != 0 {
			command.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		}
	}
	return command
}

func (f *fixture) run() result {
	f.t.Helper()
	return f.finish(f.start(f.command()))
}

type started struct {
	command *exec.Cmd
	begun   time.Time
}

func (f *fixture) start(command *exec.Cmd) started {
	f.t.Helper()
	begun := time.Now()
	if err := command.Start(); err != nil {
		if f.init && (errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC)) {
			f.t.Skip("not applicable: no PID namespaces here:", err)
		}
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = command.Process.Kill() })
	return started{command, begun}
}

func (f *fixture) finish(each started) result {
	f.t.Helper()
	_ = each.command.Wait()
	raw, err := os.ReadFile(f.path("log"))
	if err != nil {
		f.t.Fatal(err)
	}
	got := result{code: each.command.ProcessState.ExitCode(), raw: raw, took: time.Since(each.begun)}
	if err := json.Unmarshal(raw, &got.message); err != nil {
		f.t.Fatalf("message %.200q: %v", raw, err)
	}
	if got.message.Code != got.code {
		f.t.Errorf("message says %d, the exit code is %d", got.message.Code, got.code)
	}
	return got
}

// become makes the container's user somebody else than root.
func (f *fixture) become(user uint32) {
	f.t.Helper()
	if os.Getuid() != 0 {
		f.t.Skip("not applicable: only root can become somebody else")
	}
	f.user = user
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		f.t.Fatal(err)
	}
	// The test binary itself lies in a folder that only its builder may enter.
	if err := os.WriteFile(f.path("program"), program, 0o755); err != nil {
		f.t.Fatal(err)
	}
	for _, name := range []string{"..", "", "workspace", "output"} {
		if err := os.Chmod(f.path(name), 0o777); err != nil {
			f.t.Fatal(err)
		}
	}
}

// shed makes the container's user a root without capabilities, as in a Pod.
func (f *fixture) shed() {
	f.t.Helper()
	if _, err := exec.LookPath("setpriv"); err != nil || os.Getuid() != 0 {
		f.t.Skip("not applicable: needs root and setpriv")
	}
	f.bare = true
}

func (f *fixture) read(name string) string {
	f.t.Helper()
	content, err := os.ReadFile(f.path(name))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(content)
}

func (f *fixture) write(name, content string) {
	f.t.Helper()
	if err := os.MkdirAll(filepath.Dir(f.path(name)), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(f.path(name), []byte(content), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// waitFor polls for a file that a command writes when it is up.
func (f *fixture) waitFor(name string) {
	f.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(f.path(name)); err == nil {
			return
		}
	}
	f.t.Fatalf("%s did not appear", name)
}
