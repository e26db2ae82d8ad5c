package process

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/specs"
)

const (
	// precheckBytes of what a precheck said stand in the message.
	precheckBytes = 1000
	envProgram    = "env"
)

// compileSeconds is far more than the compilation of one file takes.
const compileSeconds float64 = 60

// Precheck runs what examines the trusted inputs before any candidate is there, and looks for the
// programs that the phases start. It returns nil when the phases may begin. A precheck that runs
// into its time limit found nothing: only what is certain is held against the author.
func Precheck(spec specs.Run, prechecks []specs.Phase, streams *os.File, stop <-chan struct{}) (*outcome.Message, [2]*Capture) {
	for _, phase := range spec.Phases {
		if !phase.Ready {
			continue
		}
		if err := lookFor(phase, surroundings(spec, phase)); err != nil {
			return unfit(Describe(phase, Ending{ExitCode: CodeNotFound, Fault: err.Error()}, noCaptures()), noCaptures())
		}
	}
	for _, phase := range append(compiled(spec.Phases), prechecks...) {
		kept := newCaptures(spec.Streams, streams)
		end, err := runPhase(phase, surroundings(spec, phase), kept, stop)
		closeLive(kept)
		result := Describe(phase, end, kept)
		switch {
		case err != nil:
			result.Code, result.Error = outcome.CodeOwnFault, err.Error()
			return &result, kept
		case end.Stopped:
			result.Code = StopCode()
			return &result, kept
		case !end.TimedOut && (end.ExitCode != 0 || end.Fault != ""):
			return unfit(result, kept)
		}
	}
	return nil, noCaptures()
}

// unfit is the end of a check that its author has to mend, with the words of what found that.
func unfit(result outcome.Message, kept [2]*Capture) (*outcome.Message, [2]*Capture) {
	result.Code = outcome.CodeUnfit
	if said := strings.TrimSpace(string(kept[1].Head)); result.Error == "" && said != "" {
		result.Error = said[max(0, len(said)-precheckBytes):]
	}
	return &result, kept
}

// compiled are the prechecks of scripts that their first line gives to a Python.
func compiled(phases []specs.Phase) []specs.Phase {
	var result []specs.Phase
	for _, phase := range phases {
		if !phase.Script || phase.Sources == "" {
			continue
		}
		command, err := byFirstLine(phase, nil)
		if err != nil || !strings.HasPrefix(path.Base(command[len(command)-len(phase.Command)-1]), "python") {
			continue
		}
		limit := float64(compileSeconds)
		interpreter := command[:len(command)-len(phase.Command)]
		phase.Name, phase.Script, phase.TimeoutSeconds = "sources of "+path.Base(phase.Command[0]), false, &limit
		phase.Command = append(append([]string{}, interpreter...), "-I", "-S", "-B", "-c", phase.Sources, phase.Command[0])
		result = append(result, phase)
	}
	return result
}

func noCaptures() [2]*Capture { return [2]*Capture{{}, {}} }

func closeLive(kept [2]*Capture) {
	for _, each := range kept {
		if each.live != nil {
			_ = each.live.Close()
		}
	}
}

// lookFor returns why the program of a phase cannot be started, or nil.
func lookFor(phase specs.Phase, environment []string) error {
	command := phase.Command
	if phase.Script {
		var err error
		if command, err = byFirstLine(phase, environment); err != nil {
			return err
		}
	}
	if err := executable(command[0], phase.Workdir, environment); err != nil {
		return err
	}
	if phase.Script && path.Base(command[0]) == envProgram && len(command) == len(phase.Command)+2 {
		if name := command[1]; !strings.HasPrefix(name, "-") && !strings.ContainsAny(name, "= ") {
			return executable(name, phase.Workdir, environment)
		}
	}
	return nil
}

// executable reports whether a name leads to a program, searched for as start does it.
func executable(name, workdir string, environment []string) error {
	found := error(nil)
	for _, file := range Programs(name, environment) {
		if !path.IsAbs(file) {
			file = filepath.Join(workdir, file)
		}
		info, err := os.Stat(file)
		switch {
		case err != nil:
			continue
		case !info.Mode().IsRegular() || unix.Access(file, unix.X_OK) != nil:
			found = fmt.Errorf("%s is not executable", name)
		default:
			return nil
		}
	}
	if found != nil {
		return found
	}
	return errors.New(name + " is not there: no such program before the candidate is placed")
}
