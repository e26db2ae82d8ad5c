// Package courier is the verb courier: it seals what untrusted code left.
package courier

import (
	"fmt"
	"os"
	"os/signal"
	"path"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/cgroup"
	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

// volumes is where the courier's container has the Pod's volumes; programs built for tests have them elsewhere.
var volumes = "/work"

const (
	noteBytes = 8192
	// sealedFile holds the message of a sealing that is done: a courier that is started again repeats
	// it and never seals a second time.
	sealedFile = "sealed.json"

	// liveInterval lies between two looks at what an agent has printed since.
	liveInterval = time.Second

	// rewardBytes is far above what supervise writes about a reward.
	rewardBytes = 1 << 20

	// garbagePercent keeps what is collected later than it could be a small part of the memory.
	garbagePercent = 20
)

// Run takes what untrusted code left when the kubelet says that it has ended: it waits for SIGTERM,
// works and leaves its termination message. With another code than 0 nothing was sealed.
func Run(spec, log string) int {
	// First of all: PID 1 loses a signal that comes before it is asked for.
	told := make(chan os.Signal, 1)
	signal.Notify(told, unix.SIGTERM)
	used := cgroup.MeasureUsage(cgroup.MemoryPeaks, cgroup.CpuStats)
	task, err := newJob(spec)
	if err != nil {
		return courierFailed(err)
	}
	unix.Umask(0o022)
	debug.SetGCPercent(garbagePercent)
	if err := task.makeFolders(); err != nil {
		return courierFailed(err)
	}
	waitForTerm(told, task.meanwhile(), liveInterval)
	return task.conclude(log, used)
}

// job carries out a courier's specification.
type job struct{ specs.Courier }

func newJob(spec string) (job, error) {
	task, err := specs.Read[specs.Courier](spec)
	return job{task}, err
}

// makeFolders makes, in their order, the folders for which other containers wait. A courier that is started
// again finds the last one and makes none: what was taken away since stays away.
func (t job) makeFolders() error {
	if count := len(t.Folders); count > 0 && !os.IsNotExist(unix.Access(path.Join(volumes, t.Folders[count-1]), unix.F_OK)) {
		return nil
	}
	for _, name := range t.Folders {
		if err := os.Mkdir(path.Join(volumes, name), untrusted.FolderReadable); err != nil && !os.IsExist(err) {
			return err
		}
	}
	return nil
}

func (t job) conclude(log string, used func() outcome.Usage) int {
	code := outcome.CodeDone
	message, err := t.work()
	if errno, isOfNode := untrusted.NodeError(err); isOfNode {
		code, message = outcome.CodeStorage, []byte(untrusted.Strerror(errno))
	} else if err != nil {
		return courierFailed(err)
	}
	message = outcome.WithUsage(message, used())
	if err := os.WriteFile(log, message[:min(len(message), outcome.MessageBytes)], 0o644); err != nil {
		return courierFailed(err)
	}
	return code
}

func courierFailed(err error) int {
	fmt.Fprintln(os.Stderr, "supervise: courier:", err)
	return outcome.CodeFailed
}

// meanwhile is what is done again and again until the untrusted container has ended, or nil.
func (t job) meanwhile() func() {
	if t.Seal == nil || !t.Seal.Live {
		return nil
	}
	var copies []*liveCopy
	for _, name := range outcome.StreamNames {
		copies = append(copies, newLiveCopy(path.Join(volumes, "output"), name, path.Join(volumes, "producer")))
	}
	return func() {
		for _, each := range copies {
			each.step()
		}
	}
}

func waitForTerm(told <-chan os.Signal, meanwhile func(), interval time.Duration) {
	if meanwhile == nil {
		<-told
		return
	}
	for {
		select {
		case <-told:
			return
		case <-time.After(interval):
			meanwhile()
		}
	}
}

func (t job) work() ([]byte, error) {
	if t.Seal == nil {
		return t.collect()
	}
	return t.sealOnce()
}

// sealOnce seals the candidate, keeps the producer's streams and returns the message when all of it is
// on the disk. When it was done before, only the message is returned.
func (t job) sealOnce() ([]byte, error) {
	producer := path.Join(volumes, "producer")
	note, err := readNote(producer, sealedFile)
	if !untrusted.IsMissing(err) {
		return note, err
	}
	outputs, err := openOutputs(path.Join(volumes, "output"), t.Limits)
	if err != nil {
		return nil, err
	}
	defer outputs.close()
	sealed, err := t.seal(outputs[0])
	if err != nil {
		return nil, err
	}
	streams, err := outputs.keep(producer, t.Limits.StreamBytes)
	if err != nil {
		return nil, err
	}
	kernel, err := outcome.KernelRelease()
	if err != nil {
		return nil, err
	}
	message := []byte(`{"v":1,` + sealed.fields() + "," + streams + `,"kernel":` + outcome.ASCIIJSON(kernel) + "}")
	return message, untrusted.WriteFile(producer, sealedFile, message)
}

func readNote(folder, name string) ([]byte, error) {
	root, err := untrusted.OpenFolder(folder)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return untrusted.ReadRegular(root, name, noteBytes)
}

// collect keeps the streams of a check, the changed paths of a patch and the reward of a script, and returns
// the message.
func (t job) collect() ([]byte, error) {
	verification := path.Join(volumes, "verification")
	if err := t.keepReports(verification); err != nil {
		return nil, err
	}
	outputs, err := openOutputs(path.Join(volumes, "output"), t.Limits)
	if err != nil {
		return nil, err
	}
	defer outputs.close()
	streams, err := outputs.keep(verification, t.Limits.StreamBytes)
	if err != nil {
		return nil, err
	}
	kernel, err := outcome.KernelRelease()
	return []byte(`{"v":1,` + streams + `,"kernel":` + outcome.ASCIIJSON(kernel) + "}"), err
}

// keepReports keeps what supervise wrote beside the streams, if anything; the operator knows when to read it.
func (t job) keepReports(verification string) error {
	output, err := untrusted.OpenFolder(path.Join(volumes, "output"))
	if err != nil {
		return err
	}
	defer output.Close()
	for name, limit := range map[string]int64{outcome.ChangedFile: t.Limits.PatchBytes, outcome.RewardFile: rewardBytes} {
		err := untrusted.CopyRegular(output, name, limit, verification, name)
		if err != nil && !untrusted.IsUnreadable(err) {
			return err
		}
	}
	return nil
}
