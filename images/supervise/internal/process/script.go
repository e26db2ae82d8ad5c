package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

const (
	// firstLineBytes is how much of a script the kernel looks at, too.
	firstLineBytes = 256
	defaultShell   = "/bin/sh"
	blanks         = " \t"
)

// byFirstLine returns the command that runs a script which need not be executable: its #! line names
// the interpreter with at most one argument, as the kernel reads it; without one the phase's shell does it, or sh.
func byFirstLine(phase specs.Phase, environment []string) ([]string, error) {
	command := phase.Command
	line, found, err := firstLine(command[0])
	if err != nil {
		return nil, &startError{CodeNotFound, fmt.Sprintf("script %s: %v", command[0], plain(err))}
	}
	if !found {
		shell := defaultShell
		if phase.Interpreter != "" && executable(phase.Interpreter, phase.Workdir, environment) == nil {
			shell = phase.Interpreter
		}
		return append([]string{shell}, command...), nil
	}
	interpreter, argument := line, ""
	if end := strings.IndexAny(line, blanks); end >= 0 {
		interpreter, argument = line[:end], strings.Trim(line[end:], blanks)
	}
	if !path.IsAbs(interpreter) {
		return nil, &startError{codeNotExecutable, fmt.Sprintf("script %s: its #! line names no absolute path", command[0])}
	}
	result := []string{interpreter}
	if argument != "" {
		result = append(result, argument)
	}
	return append(result, command...), nil
}

// firstLine returns what follows #! on the first line, and whether the file begins with it.
func firstLine(name string) (string, bool, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", false, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", false, errors.Join(err, errors.New("not a file"))
	}
	head, err := io.ReadAll(io.LimitReader(file, firstLineBytes))
	if err != nil {
		return "", false, err
	}
	line, _, _ := strings.Cut(string(head), "\n")
	rest, found := strings.CutPrefix(strings.TrimSuffix(line, "\r"), "#!")
	return strings.Trim(rest, blanks), found, nil
}

// plain drops the path that an error repeats.
func plain(err error) error {
	var known *os.PathError
	if errors.As(err, &known) {
		return known.Err
	}
	return err
}

// searchable returns the environment with a PATH from which no program of an untrusted folder is
// taken: no relative folder, none at or below that one.
func searchable(environment []string, folder string) []string {
	result := make([]string, 0, len(environment))
	for _, entry := range environment {
		if search, found := strings.CutPrefix(entry, "PATH="); found {
			entry = "PATH=" + trustedFolders(search, folder)
		}
		result = append(result, entry)
	}
	return result
}

func trustedFolders(search, candidate string) string {
	var kept []string
	for _, folder := range strings.Split(search, ":") {
		real, err := filepath.EvalSymlinks(folder)
		if err != nil {
			real = path.Clean(folder)
		}
		if path.IsAbs(folder) && !untrusted.IsBelow(path.Clean(folder), candidate) && !untrusted.IsBelow(real, candidate) {
			kept = append(kept, folder)
		}
	}
	if len(kept) == 0 {
		return SearchPath
	}
	return strings.Join(kept, ":")
}
