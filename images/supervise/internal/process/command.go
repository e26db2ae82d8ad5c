package process

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/specs"
)

// Exit codes of a command that was not started, as a shell has them.
const (
	CodeNotFound      = 127
	codeNotExecutable = 126
)

const (
	// SearchPath applies when the image sets no PATH; Docker uses the same.
	SearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// startError says why a command could not be started, as an exit code of a shell would.
type startError struct {
	exitCode int
	text     string
}

func (e *startError) Error() string { return e.text }

// start starts the command of a phase in a session of its own, searched for like execvp does:
// a name with a slash is a path, a file that the kernel does not know is given to sh. It
// returns a startError for what the phase is to blame for.
func start(phase specs.Phase, environment []string, files []uintptr) (int, error) {
	if info, err := os.Stat(workdir(phase)); err != nil || !info.IsDir() {
		return 0, &startError{codeNotExecutable, fmt.Sprintf("working folder %s cannot be used", phase.Workdir)}
	}
	command := phase.Command
	if phase.Script {
		var err error
		if command, err = byFirstLine(phase, environment); err != nil {
			return 0, err
		}
	}
	own := &syscall.SysProcAttr{Setsid: true, Ptrace: phase.Guarded}
	if phase.User != 0 {
		if !canBecome() {
			return 0, fmt.Errorf("phase %s: CAP_SETUID, CAP_SETGID and CAP_KILL are needed to run it as user %d", phase.Name, phase.User)
		}
		own.Credential = &syscall.Credential{Uid: phase.User, Gid: phase.User}
	}
	attributes := &syscall.ProcAttr{
		Dir:   phase.Workdir,
		Env:   environment,
		Files: files,
		Sys:   own,
	}
	result := error(unix.ENOENT)
	for _, file := range Programs(command[0], environment) {
		pid, err := syscall.ForkExec(file, command, attributes)
		if own.Ptrace && errors.Is(err, unix.EPERM) {
			own.Ptrace = false
			pid, err = syscall.ForkExec(file, command, attributes)
		}
		if errors.Is(err, unix.ENOEXEC) {
			byShell := append([]string{"sh", file}, command[1:]...)
			pid, err = syscall.ForkExec(defaultShell, byShell, attributes)
		}
		switch {
		case err == nil:
			return pid, nil
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EMFILE):
			return 0, fmt.Errorf("cannot start a process: %w", err)
		case !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR):
			result = err
		}
	}
	failed := &startError{codeNotExecutable, command[0] + ": " + result.Error()}
	if errors.Is(result, unix.ENOENT) {
		failed.exitCode = CodeNotFound
	}
	return 0, failed
}

func workdir(phase specs.Phase) string {
	if phase.Workdir == "" {
		return "."
	}
	return phase.Workdir
}

// Programs lists the files that a command's name may mean.
func Programs(name string, environment []string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	search := SearchPath
	for _, entry := range environment {
		if value, found := strings.CutPrefix(entry, "PATH="); found {
			search = value
		}
	}
	var files []string
	for _, folder := range strings.Split(search, ":") {
		if folder == "" {
			folder = "."
		}
		files = append(files, strings.TrimSuffix(folder, "/")+"/"+name)
	}
	return files
}

// extended is an environment whose PATH goes on with further folders.
func extended(environment, folders []string) []string {
	if len(folders) == 0 {
		return environment
	}
	further := ":" + strings.Join(folders, ":")
	for index, entry := range environment {
		if strings.HasPrefix(entry, "PATH=") {
			environment[index] = entry + further
			return environment
		}
	}
	return append(environment, "PATH="+SearchPath+further)
}
