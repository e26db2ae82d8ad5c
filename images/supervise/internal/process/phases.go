package process

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

// RuntimeThreads is the room that the process limit leaves for this process itself.
const RuntimeThreads = spareThreads + 12

// RunPhases runs the phases in order until one fails and returns the message about the last
// one that ran, with its streams.
func RunPhases(spec specs.Run, streams *os.File, stop <-chan struct{}) (outcome.Message, [2]*Capture) {
	var result outcome.Message
	var kept [2]*Capture
	for number, phase := range spec.Phases {
		kept = newCaptures(spec.Streams, streams)
		end, err := runPhase(phase, surroundings(spec, phase), kept, stop)
		closeLive(kept)
		result = Describe(phase, end, kept)
		last := number == len(spec.Phases)-1
		result.Code = phaseCode(end, number, last && !(phase.Script && end.Fault != ""), spec.Verdict)
		if err != nil {
			result.Code, result.Error = outcome.CodeOwnFault, err.Error()
		}
		if last || err != nil || result.Code != outcome.CodeDone {
			break
		}
	}
	return result, kept
}

// phaseCode is the one place where the end of a command becomes a verdict: a pass needs a
// last phase that was started, ended by itself and returned 0. Without a verdict the time limit of the last
// phase alone is the agent's; the phases before it are ours.
func phaseCode(end Ending, number int, last, verdict bool) int {
	failed := end.ExitCode != 0 || end.Signal != 0 || end.Fault != ""
	switch {
	case end.Stopped:
		return StopCode()
	case end.TimedOut && (last || verdict):
		return outcome.CodeTimeout
	case failed && !last:
		return outcome.CodePhase + number
	case failed && verdict:
		return outcome.CodeFailed
	default:
		return outcome.CodeDone
	}
}

// Describe is the message about a phase that has ended, without its code.
func Describe(phase specs.Phase, end Ending, kept [2]*Capture) outcome.Message {
	return outcome.Message{
		V:               1,
		Phase:           phase.Name,
		ExitCode:        end.ExitCode,
		Signal:          end.Signal,
		TimedOut:        end.TimedOut,
		DurationSeconds: outcome.Seconds(end.duration),
		StdoutBytes:     kept[0].Total,
		StderrBytes:     kept[1].Total,
		Error:           end.Fault,
		Unstarted:       end.refused,
		Grading:         end.grading,
	}
}

// surroundings is a phase's environment; beside a candidate no program of its folder is found.
func surroundings(spec specs.Run, phase specs.Phase) []string {
	result := extended(environment(spec.Home, phase.Env), phase.Search)
	if spec.Candidate != nil {
		result = searchable(result, spec.Candidate.To)
	}
	return result
}

// environment is the container's, with HOME and the phase's own variables in place.
func environment(home string, own map[string]string) []string {
	replaced := map[string]string{}
	if home != "" {
		replaced["HOME"] = home
	}
	for name, value := range own {
		replaced[name] = value
	}
	var result []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if _, known := replaced[name]; !known {
			result = append(result, entry)
		}
	}
	for name, value := range replaced {
		result = append(result, name+"="+value)
	}
	return result
}

// LimitProcesses bounds the processes and threads of this user, ourselves included.
func LimitProcesses(wanted uint64) error {
	if wanted == 0 {
		return nil
	}
	limit := wanted + RuntimeThreads
	return unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: limit, Max: limit})
}

func newCaptures(spec specs.Streams, folder *os.File) [2]*Capture {
	var kept [2]*Capture
	for index, name := range outcome.StreamNames {
		kept[index] = &Capture{HeadLimit: spec.HeadBytes, TailLimit: spec.TailBytes}
		if folder != nil {
			// Only for the case that this process is killed; WriteStreams reports what is wrong.
			kept[index].live, _ = untrusted.CreateAt(folder, name)
		}
	}
	return kept
}

// WriteStreams writes what was kept and the message. The commands could reach the folder, so
// whatever is there now is replaced.
func WriteStreams(folder *os.File, kept [2]*Capture, result *outcome.Message) {
	if folder == nil {
		return
	}
	untrusted.OpenFolderMode(folder)
	var problem error
	for index, name := range outcome.StreamNames {
		problem = errors.Join(problem,
			untrusted.ReplaceFileAt(folder, name, kept[index].Head),
			untrusted.ReplaceFileAt(folder, name+".tail", kept[index].Last()))
	}
	if problem != nil && result.Error == "" {
		result.Error = "streams: " + problem.Error()
	}
	if err := untrusted.ReplaceFileAt(folder, outcome.ReportFile, result.Encode()); err != nil && result.Error == "" {
		result.Error = "streams: " + err.Error()
	}
}
