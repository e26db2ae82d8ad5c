package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// runtimeThreads is the room that the process limit leaves for this process itself.
const runtimeThreads = spareThreads + 12

var streamNames = [2]string{"stdout", "stderr"}

var errOpen = errors.New("the network is open: an address that must be closed accepts connections")

// keptFolders are the folders that are used again after the commands ran. They stay open, so that no
// command can exchange one of their parents.
type keptFolders struct {
	streams *os.File // nil when no streams are kept
	open    []*os.File
}

// run is the job of the containers harness and check.
func run(text string, stop <-chan struct{}) message {
	spec, err := decodeRun(text)
	if err != nil {
		return failure(codeOwnFault, err)
	}
	for _, address := range append(append([]string{}, spec.Probes...), spec.Awaits...) {
		if host, _, err := net.SplitHostPort(address); err != nil || net.ParseIP(host) == nil {
			return failure(codeOwnFault, fmt.Errorf("specification: %q is not IP:port", address))
		}
	}
	if !waitMade([]string{spec.Serves, spec.Holds}, madeAllowance, stop) {
		return failure(codeOwnFault, errNotMade)
	}
	if spec.Once != "" {
		first, err := firstStart(spec.Once)
		if err != nil {
			return failure(codeOwnFault, err)
		}
		if !first {
			return waitAgain(stop)
		}
	}
	stop, disturbed, err := watchOver(spec.Serves, stop)
	if err == nil && spec.Holds != "" {
		err = hold(spec.Holds)
	}
	if err != nil {
		return failure(codeOwnFault, err)
	}
	result := runStaged(spec, stop)
	if disturbed.Load() {
		result.Code, result.Error = codeTampered, errDisturbed.Error()
	}
	return result
}

// runStaged stages, runs the phases and leaves the message and the streams.
func runStaged(spec runSpec, stop <-chan struct{}) message {
	if err := ownTemporary(spec.Temporary); err != nil {
		return failure(codeStaging, err)
	}
	folders, err := openKept(spec)
	if err != nil {
		return failure(codeStaging, err)
	}
	if code, err := stage(spec, stop); err != nil {
		return failure(code, err)
	}
	if err := limitProcesses(spec.MaxProcesses); err != nil {
		return failure(codeOwnFault, fmt.Errorf("process limit: %w", err))
	}
	if spec.Repository == nil {
		if unfit, kept := precheck(spec, spec.Prechecks, folders.streams, stop); unfit != nil {
			writeStreams(folders.streams, kept, unfit)
			return *unfit
		}
	}
	if err := bring(spec); err != nil {
		return failure(codeStaging, err)
	}
	kills, used := countMemoryKills(memoryEvents), measureUsage(memoryPeaks, cpuStats)
	result, kept := work(spec, folders.streams, stop)
	result.MemoryKills, result.usage = kills(), used()
	if result.Code != codeStopped {
		for _, folder := range folders.open {
			openModes(folder, 0)
		}
	}
	if result.Code != codeStopped && !allClosed(spec.Probes) {
		result.Code, result.Error = codeNetwork, errOpen.Error()
	}
	writeStreams(folders.streams, kept, &result)
	if spec.Linger {
		<-stop
	}
	return result
}

func openKept(spec runSpec) (keptFolders, error) {
	var folders keptFolders
	var err error
	if spec.Streams.Folder != "" {
		if folders.streams, err = openFolder(spec.Streams.Folder); err != nil {
			return folders, err
		}
		if err := ownFolder(folders.streams, spec.Phases); err != nil {
			return folders, err
		}
	}
	for _, name := range spec.OpenModes {
		folder, err := openFolder(name)
		if err != nil {
			return folders, err
		}
		folders.open = append(folders.open, folder)
	}
	return folders, nil
}

// ownFolder keeps commands of other users from writing into the folder of the streams.
func ownFolder(folder *os.File, phases []phaseSpec) error {
	for _, phase := range phases {
		if phase.User != 0 {
			return unix.Fchmod(int(folder.Fd()), folderReadable)
		}
	}
	return nil
}

// stage checks everything that the phases need; it returns the code of a failure.
func stage(spec runSpec, stop <-chan struct{}) (int, error) {
	for _, lane := range spec.Lanes {
		digest, err := treeDigest(lane.Path)
		if err != nil {
			return codeStaging, fmt.Errorf("lane %s: %w", lane.Path, err)
		}
		if digest != lane.Digest {
			return codeStaging, fmt.Errorf("lane %s: the digest is not the expected one", lane.Path)
		}
	}
	if !waitClosed(spec.Probes, duration(spec.ProbeTimeoutSeconds), stop) {
		select {
		case <-stop:
			return codeStopped, errStopped
		default:
		}
		return codeNetwork, errOpen
	}
	if !waitOpen(spec.Awaits, stop) {
		return codeStopped, errStopped
	}
	return codeDone, nil
}

// bring puts the candidate and what is copied where the phases find it.
func bring(spec runSpec) error {
	if spec.Candidate != nil {
		if err := unpackCandidate(*spec.Candidate, spec.Protected); err != nil {
			return err
		}
	}
	for _, each := range spec.Copies {
		if err := transfer(each, spec.Protected); err != nil {
			err = fmt.Errorf("copy %s: %w", each.From, err)
			if spec.Candidate != nil {
				err = ofCandidate(err)
			}
			return err
		}
	}
	return nil
}

// work makes the repository ready, where there is one, and runs the phases.
func work(spec runSpec, streams *os.File, stop <-chan struct{}) (message, [2]*capture) {
	if spec.Diff != nil {
		return workAndDiff(spec, streams, stop)
	}
	if spec.Repository == nil {
		return runPhases(spec, streams, stop)
	}
	kept := [2]*capture{{}, {}}
	content, err := spec.Repository.load()
	if err != nil {
		return failure(codeStaging, err), kept
	}
	ready, err := prepareRepository(spec, content, kept, streams, stop)
	var failed *stepError
	if errors.As(err, &failed) {
		return failed.message(ready, streams, kept), kept
	}
	var refused *unfitError
	if errors.As(err, &refused) {
		refused.result.Commit = ready.commit
		return *refused.result, refused.kept
	}
	if err != nil {
		return failure(codeOwnFault, err), kept
	}
	result, kept := runPhases(spec, streams, stop)
	result.Commit = ready.commit
	if spec.Repository.Control != nil {
		result.Code = controlCode(result.Code)
	}
	return result, kept
}

// workAndDiff runs the phases and leaves what they changed in a repository.
func workAndDiff(spec runSpec, streams *os.File, stop <-chan struct{}) (message, [2]*capture) {
	before, err := recordWorktree(*spec.Diff, stop)
	if err != nil {
		return failure(codeStaging, fmt.Errorf("repository: %w", err)), [2]*capture{{}, {}}
	}
	result, kept := runPhases(spec, streams, stop)
	if !result.TimedOut && result.Code != codeStopped {
		result.Diff = before.write(streams)
		result.Commit = before.commit
	}
	// A command may have made it unremovable; it ends with the Pod.
	_ = before.git.close()
	return result, kept
}

// controlCode judges checks to which a test was added that must fail.
func controlCode(code int) int {
	switch code {
	case codeDone:
		return codeTampered
	case codeFailed, codeTimeout:
		return codeDone
	default:
		return code
	}
}

// runPhases runs the phases in order until one fails and returns the message about the last
// one that ran, with its streams.
func runPhases(spec runSpec, streams *os.File, stop <-chan struct{}) (message, [2]*capture) {
	var result message
	var kept [2]*capture
	for number, phase := range spec.Phases {
		kept = newCaptures(spec.Streams, streams)
		end, err := runPhase(phase, surroundings(spec, phase), kept, stop)
		closeLive(kept)
		result = describe(phase, end, kept)
		last := number == len(spec.Phases)-1
		result.Code = phaseCode(end, number, last && !(phase.Script && end.fault != ""), spec.Verdict)
		if err != nil {
			result.Code, result.Error = codeOwnFault, err.Error()
		}
		if last || err != nil || result.Code != codeDone {
			break
		}
	}
	return result, kept
}

// phaseCode is the one place where the end of a command becomes a verdict: a pass needs a
// last phase that was started, ended by itself and returned 0. Without a verdict the time limit of the last
// phase alone is the agent's; the phases before it are ours.
func phaseCode(end ending, number int, last, verdict bool) int {
	failed := end.exitCode != 0 || end.signal != 0 || end.fault != ""
	switch {
	case end.stopped:
		return codeStopped
	case end.timedOut && (last || verdict):
		return codeTimeout
	case failed && !last:
		return codePhase + number
	case failed && verdict:
		return codeFailed
	default:
		return codeDone
	}
}

func describe(phase phaseSpec, end ending, kept [2]*capture) message {
	return message{
		V:               1,
		Phase:           phase.Name,
		ExitCode:        end.exitCode,
		Signal:          end.signal,
		TimedOut:        end.timedOut,
		DurationSeconds: seconds(end.duration),
		StdoutBytes:     kept[0].total,
		StderrBytes:     kept[1].total,
		Error:           end.fault,
		Unstarted:       end.refused,
	}
}

// surroundings is a phase's environment; beside a candidate no program of its folder is found.
func surroundings(spec runSpec, phase phaseSpec) []string {
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

// limitProcesses bounds the processes and threads of this user, ourselves included.
func limitProcesses(wanted uint64) error {
	if wanted == 0 {
		return nil
	}
	limit := wanted + runtimeThreads
	return unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: limit, Max: limit})
}

func newCaptures(spec streamsSpec, folder *os.File) [2]*capture {
	var kept [2]*capture
	for index, name := range streamNames {
		kept[index] = &capture{headLimit: spec.HeadBytes, tailLimit: spec.TailBytes}
		if folder != nil {
			// Only for the case that this process is killed; writeStreams reports what is wrong.
			kept[index].live, _ = createAt(folder, name)
		}
	}
	return kept
}

// writeStreams writes what was kept and the message. The commands could reach the folder, so
// whatever is there now is replaced.
func writeStreams(folder *os.File, kept [2]*capture, result *message) {
	if folder == nil {
		return
	}
	openFolderMode(folder)
	var problem error
	for index, name := range streamNames {
		problem = errors.Join(problem,
			replaceFileAt(folder, name, kept[index].head),
			replaceFileAt(folder, name+".tail", kept[index].last()))
	}
	if problem != nil && result.Error == "" {
		result.Error = "streams: " + problem.Error()
	}
	if err := replaceFileAt(folder, reportFile, result.encode()); err != nil && result.Error == "" {
		result.Error = "streams: " + err.Error()
	}
}
