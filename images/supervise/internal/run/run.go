// Package run is the verb run: PID 1 of the containers harness, check, verifier and candidate.
package run

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/cgroup"
	"securebench.dev/supervise/internal/network"
	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/process"
	"securebench.dev/supervise/internal/repository"
	"securebench.dev/supervise/internal/rootfs"
	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/staging"
	"securebench.dev/supervise/internal/untrusted"
)

var errOpen = errors.New("the network is open: an address that must be closed accepts connections")

// keptFolders are the folders that are used again after the commands ran. They stay open, so that no
// command can exchange one of their parents.
type keptFolders struct {
	streams *os.File // nil when no streams are kept
	reward  *os.File // nil when no reward is taken
	open    []*os.File
}

// Run is the job of the containers harness and check.
func Run(text string, stop <-chan struct{}) outcome.Message {
	spec, err := specs.Read[specs.Run](text)
	if err != nil {
		return outcome.Failure(outcome.CodeOwnFault, err)
	}
	for _, address := range append(append([]string{}, spec.Probes...), spec.Awaits...) {
		if host, _, err := net.SplitHostPort(address); err != nil || net.ParseIP(host) == nil {
			return outcome.Failure(outcome.CodeOwnFault, fmt.Errorf("specification: %q is not IP:port", address))
		}
	}
	if !waitMade([]string{spec.Serves, spec.Holds}, madeAllowance, stop) {
		return outcome.Failure(unlessStopped(stop, outcome.CodeOwnFault, errNotMade))
	}
	if spec.Once != "" {
		first, err := firstStart(spec.Once)
		if err != nil {
			return outcome.Failure(outcome.CodeOwnFault, err)
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
		return outcome.Failure(outcome.CodeOwnFault, err)
	}
	result := runStaged(spec, stop)
	if disturbed.Load() {
		result.Code, result.Error = outcome.CodeTampered, errDisturbed.Error()
	}
	return result
}

// runStaged stages, runs the phases and leaves the message and the streams.
func runStaged(spec specs.Run, stop <-chan struct{}) outcome.Message {
	if err := ownTemporary(spec.Temporary); err != nil {
		return outcome.Failure(outcome.CodeStaging, err)
	}
	folders, err := openKept(spec)
	if err != nil {
		return outcome.Failure(outcome.CodeStaging, err)
	}
	become, err := otherUser(spec)
	if err != nil {
		return userFailure(spec, err)
	}
	if code, err := stage(spec, stop); err != nil {
		return outcome.Failure(code, err)
	}
	if err := process.LimitProcesses(spec.MaxProcesses); err != nil {
		return outcome.Failure(outcome.CodeOwnFault, fmt.Errorf("process limit: %w", err))
	}
	if spec.Repository == nil {
		if unfit, kept := process.Precheck(spec, spec.Prechecks, folders.streams, stop); unfit != nil {
			process.WriteStreams(folders.streams, kept, unfit)
			return *unfit
		}
	}
	if !waitMade([]string{spec.Needs}, specs.Duration(spec.NeedsSeconds), stop) {
		missing := fmt.Errorf("no other container made %s within %g seconds", spec.Needs, spec.NeedsSeconds)
		return outcome.Failure(unlessStopped(stop, outcome.CodeOwnFault, missing))
	}
	losses, err := bring(spec)
	if err != nil {
		return bringFailure(err)
	}
	if err := become(); err != nil {
		return outcome.Failure(outcome.CodeOwnFault, err)
	}
	kills, used := cgroup.CountMemoryKills(cgroup.MemoryEvents), cgroup.MeasureUsage(cgroup.MemoryPeaks, cgroup.CpuStats)
	result, kept := work(spec, folders.streams, stop)
	result.MemoryKills, result.Usage = kills(), used()
	result.DroppedEntries, result.Dropped = losses.Entries, losses.Named
	if !outcome.IsStopped(result.Code) {
		if err := folders.openModes(); err != nil {
			return outcome.Failure(outcome.CodeStaging, untrusted.OfCandidate(fmt.Errorf("modes of the workspace: %w", err)))
		}
	}
	if spec.Reward != nil && !outcome.IsStopped(result.Code) {
		if err := keepReward(*spec.Reward, folders); err != nil {
			return outcome.Failure(outcome.CodeStaging, untrusted.OfCandidate(fmt.Errorf("reward: %w", err)))
		}
	}
	if !outcome.IsStopped(result.Code) && !network.AllClosed(spec.Probes) {
		result.Code, result.Error = outcome.CodeNetwork, errOpen.Error()
	}
	process.WriteStreams(folders.streams, kept, &result)
	if spec.Linger {
		<-stop
	}
	return result
}

// otherUser returns what makes this process the user of its commands, looked up while all files are the image's.
func otherUser(spec specs.Run) (func() error, error) {
	if spec.User == "" {
		return func() error { return nil }, nil
	}
	user, err := process.FindUser(spec.User)
	return user.Become, err
}

// userFailure is the message about a user that the image does not have: the author of a check is to blame.
func userFailure(spec specs.Run, err error) outcome.Message {
	if !spec.Verdict {
		return outcome.Failure(outcome.CodeStaging, err)
	}
	result := outcome.Failure(outcome.CodeUnfit, err)
	result.Phase = "user"
	return result
}

// bringFailure is the message about a candidate that was not brought. Want of rights in the verifier's container is
// the task's fault, and comes again.
func bringFailure(err error) outcome.Message {
	var place *staging.RightsError
	var user *process.BorrowError
	if !errors.As(err, &place) && !errors.As(err, &user) {
		return outcome.Failure(outcome.CodeStaging, err)
	}
	result := outcome.Failure(outcome.CodeUnfit, err)
	result.Phase = "rights"
	return result
}

func openKept(spec specs.Run) (keptFolders, error) {
	var folders keptFolders
	var err error
	if spec.Streams.Folder != "" {
		if folders.streams, err = untrusted.OpenFolder(spec.Streams.Folder); err != nil {
			return folders, err
		}
		if err := ownFolder(folders.streams, spec.Phases); err != nil {
			return folders, err
		}
	}
	if spec.Reward != nil {
		if folders.reward, err = untrusted.OpenFolder(spec.Reward.Folder); err != nil {
			return folders, err
		}
	}
	for _, name := range spec.OpenModes {
		folder, err := untrusted.OpenFolder(name)
		if err != nil {
			return folders, err
		}
		folders.open = append(folders.open, folder)
	}
	return folders, nil
}

// openModes makes the folders readable. Where streams are kept the earlier modes are, of the folders that are
// not for streams.
func (k keptFolders) openModes() error {
	for _, folder := range k.open {
		if k.streams == nil || folder.Name() == k.streams.Name() {
			untrusted.OpenModes(folder, func(string, uint32) {})
		} else if err := untrusted.ListModes(folder, k.streams); err != nil {
			return err
		}
	}
	return nil
}

// ownFolder keeps commands of other users from writing into the folder of the streams.
func ownFolder(folder *os.File, phases []specs.Phase) error {
	for _, phase := range phases {
		if phase.User != 0 {
			return unix.Fchmod(int(folder.Fd()), untrusted.FolderReadable)
		}
	}
	return nil
}

// stage checks everything that the phases need; it returns the code of a failure.
func stage(spec specs.Run, stop <-chan struct{}) (int, error) {
	for _, lane := range spec.Lanes {
		digest, err := untrusted.TreeDigest(lane.Path)
		if err != nil {
			return outcome.CodeStaging, fmt.Errorf("lane %s: %w", lane.Path, err)
		}
		if digest != lane.Digest {
			return outcome.CodeStaging, fmt.Errorf("lane %s: the digest is not the expected one", lane.Path)
		}
	}
	if !network.WaitClosed(spec.Probes, specs.Duration(spec.ProbeTimeoutSeconds), stop) {
		return unlessStopped(stop, outcome.CodeNetwork, errOpen)
	}
	if !network.WaitOpen(spec.Awaits, stop) {
		return process.StopCode(), outcome.ErrStopped
	}
	return outcome.CodeDone, nil
}

// unlessStopped returns how a wait in vain ended: by a stop signal, or as its caller says.
func unlessStopped(stop <-chan struct{}, code int, err error) (int, error) {
	select {
	case <-stop:
		return process.StopCode(), outcome.ErrStopped
	default:
		return code, err
	}
}

// bring puts the candidate and what is copied where the phases find it.
func bring(spec specs.Run) (outcome.Losses, error) {
	copies := func() error {
		for _, each := range spec.Copies {
			if err := staging.Transfer(each, spec.Protected); err != nil {
				return fmt.Errorf("copy %s: %w", each.Source, err)
			}
		}
		return nil
	}
	switch {
	case spec.Changes != nil:
		if err := copies(); err != nil {
			return outcome.Losses{}, err
		}
		return changeRoot(spec)
	case spec.Candidate == nil:
		return outcome.Losses{}, copies()
	}
	return staging.StageCandidate(*spec.Candidate, spec.Protected, copies)
}

// changeRoot makes the changes of an agent with the rights of its user, who owns what it made; without one with those of
// this process, which no command keeps. Nothing of the image that a script needs to start is changed.
func changeRoot(spec specs.Run) (outcome.Losses, error) {
	changes := *spec.Changes
	for _, phase := range spec.Phases {
		if phase.Script {
			changes.Tools = append(slices.Clone(changes.Tools), phase.Command[0])
		}
	}
	var losses outcome.Losses
	change := func() error {
		var err error
		losses, err = staging.ChangeRoot(changes)
		return err
	}
	var err error
	if changes.User == "" {
		err = change()
	} else {
		var user process.User
		if user, err = process.FindUser(changes.User); err == nil {
			err = user.While(change)
		}
	}
	if err == nil && spec.User == "" {
		err = process.DropCapabilities()
	}
	return losses, err
}

// work makes the repository ready, where there is one, and runs the phases.
func work(spec specs.Run, streams *os.File, stop <-chan struct{}) (outcome.Message, [2]*process.Capture) {
	switch {
	case spec.Diff != nil:
		return workAndDiff(spec, streams, stop)
	case spec.Root != nil:
		return workOnRoot(spec, streams, stop)
	}
	if spec.Repository == nil {
		return process.RunPhases(spec, streams, stop)
	}
	kept := [2]*process.Capture{{}, {}}
	content, err := repository.Load(spec.Repository)
	if err != nil {
		return outcome.Failure(outcome.CodeStaging, err), kept
	}
	ready, err := repository.Prepare(spec, content, kept, streams, stop)
	var failed *repository.StepError
	if errors.As(err, &failed) {
		return failed.Message(ready, streams, kept), kept
	}
	var refused *repository.UnfitError
	if errors.As(err, &refused) {
		refused.Result.Commit = ready.Commit
		return *refused.Result, refused.Kept
	}
	if err != nil {
		return outcome.Failure(outcome.CodeOwnFault, err), kept
	}
	result, kept := process.RunPhases(spec, streams, stop)
	result.Commit = ready.Commit
	if spec.Repository.Control != nil {
		result.Code = controlCode(result.Code)
	}
	return result, kept
}

// workAndDiff runs the phases and leaves what they changed in a repository.
func workAndDiff(spec specs.Run, streams *os.File, stop <-chan struct{}) (outcome.Message, [2]*process.Capture) {
	before, err := repository.Record(*spec.Diff, stop)
	if err != nil {
		return outcome.Failure(outcome.CodeStaging, fmt.Errorf("repository: %w", err)), [2]*process.Capture{{}, {}}
	}
	result, kept := process.RunPhases(spec, streams, stop)
	// A command may have made it unremovable; it ends with the Pod.
	defer func() { _ = before.Close() }()
	if result.TimedOut || outcome.IsStopped(result.Code) {
		return result, kept
	}
	result.Commit = before.Commit
	result.Diff, err = before.Write(streams)
	switch {
	case errors.Is(err, outcome.ErrStopped):
		result.Code = process.StopCode()
	case err != nil:
		return outcome.Failure(outcome.CodeStaging, fmt.Errorf("diff: %w", err)), kept
	}
	return result, kept
}

// rootFolder is the root file system whose changes are kept; programs built for tests have another one.
var rootFolder = "/"

// workOnRoot runs the phases and leaves what they changed in the root file system, or its artifacts, also when their
// time was over.
func workOnRoot(spec specs.Run, streams *os.File, stop <-chan struct{}) (outcome.Message, [2]*process.Capture) {
	var left interface {
		Write(*os.File, rootfs.Bounds) error
	}
	var err error
	if len(spec.Root.Artifacts) == 0 {
		left, err = rootfs.Take(rootFolder, spec.Root.Excluded, stop)
	} else {
		left, err = artifacts(spec, stop)
	}
	if err != nil {
		return outcome.Failure(outcome.CodeStaging, fmt.Errorf("root file system: %w", err)), [2]*process.Capture{{}, {}}
	}
	result, kept := process.RunPhases(spec, streams, stop)
	if outcome.IsStopped(result.Code) {
		return result, kept
	}
	err = left.Write(streams, rootfs.Bounds{Bytes: spec.Root.Bytes, Entries: spec.Root.Entries})
	switch {
	case errors.Is(err, outcome.ErrStopped):
		result.Code = process.StopCode()
	case err != nil:
		return outcome.Failure(outcome.CodeStaging, untrusted.OfCandidate(fmt.Errorf("root file system: %w", err))), kept
	}
	return result, kept
}

// artifacts are the paths that are kept, seen from the working folder of the last phase.
func artifacts(spec specs.Run, stop <-chan struct{}) (*rootfs.Artifacts, error) {
	workdir := spec.Phases[len(spec.Phases)-1].Workdir
	if workdir == "" {
		var err error
		if workdir, err = os.Getwd(); err != nil {
			return nil, err
		}
	}
	return rootfs.NewArtifacts(rootFolder, workdir, *spec.Root, stop), nil
}

// controlCode judges checks to which a test was added that must fail.
func controlCode(code int) int {
	switch code {
	case outcome.CodeDone:
		return outcome.CodeTampered
	case outcome.CodeFailed, outcome.CodeTimeout:
		return outcome.CodeDone
	default:
		return code
	}
}
