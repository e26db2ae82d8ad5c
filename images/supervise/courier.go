package main

import (
	"fmt"
	"os"
	"os/signal"
	"path"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

// volumes is where the courier's container has the Pod's volumes; programs built for tests have them elsewhere.
var volumes = "/work"

const (
	codeStorage = 74 // a disk failed, not what untrusted code left (EX_IOERR); the message says how

	reportFile = "report.json"
	noteBytes  = 8192
	// sealedFile holds the message of a sealing that is done: a courier that is started again repeats
	// it and never seals a second time.
	sealedFile  = "sealed.json"
	changedFile = "changed.json"

	// liveInterval lies between two looks at what an agent has printed since.
	liveInterval = time.Second

	// garbagePercent keeps what is collected later than it could be a small part of the memory.
	garbagePercent = 20
)

// courier takes what untrusted code left when the kubelet says that it has ended: it waits for SIGTERM,
// works and leaves its termination message. With another code than 0 nothing was sealed.
func courier(spec, log string) int {
	// First of all: PID 1 loses a signal that comes before it is asked for.
	told := make(chan os.Signal, 1)
	signal.Notify(told, unix.SIGTERM)
	task, err := decodeCourier(spec)
	if err != nil {
		return courierFailed(err)
	}
	unix.Umask(0o022)
	debug.SetGCPercent(garbagePercent)
	if err := task.makeFolders(); err != nil {
		return courierFailed(err)
	}
	waitForTerm(told, task.meanwhile(), liveInterval)
	return task.conclude(log)
}

// makeFolders makes, in their order, the folders for which other containers wait. A courier that is started
// again finds the last one and makes none: what was taken away since stays away.
func (t *courierTask) makeFolders() error {
	if count := len(t.folders); count > 0 && !os.IsNotExist(unix.Access(path.Join(volumes, t.folders[count-1]), unix.F_OK)) {
		return nil
	}
	for _, name := range t.folders {
		if err := os.Mkdir(path.Join(volumes, name), folderReadable); err != nil && !os.IsExist(err) {
			return err
		}
	}
	return nil
}

func (t *courierTask) conclude(log string) int {
	code := codeDone
	message, err := t.work()
	if errno, isOfNode := nodeError(err); isOfNode {
		code, message = codeStorage, []byte(strerror(errno))
	} else if err != nil {
		return courierFailed(err)
	}
	if err := os.WriteFile(log, message[:min(len(message), messageBytes)], 0o644); err != nil {
		return courierFailed(err)
	}
	return code
}

func courierFailed(err error) int {
	fmt.Fprintln(os.Stderr, "supervise: courier:", err)
	return codeFailed
}

// meanwhile is what is done again and again until the untrusted container has ended, or nil.
func (t *courierTask) meanwhile() func() {
	if !t.live {
		return nil
	}
	var copies []*liveCopy
	for _, name := range streamNames {
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

func (t *courierTask) work() ([]byte, error) {
	if t.extraction == nil {
		return t.collect()
	}
	return t.sealOnce()
}

// sealOnce seals the candidate, keeps the producer's streams and returns the message when all of it is
// on the disk. When it was done before, only the message is returned.
func (t *courierTask) sealOnce() ([]byte, error) {
	producer := path.Join(volumes, "producer")
	note, err := readNote(producer, sealedFile)
	if !isMissing(err) {
		return note, err
	}
	outputs, err := openOutputs(path.Join(volumes, "output"), t.bounds)
	if err != nil {
		return nil, err
	}
	defer outputs.close()
	sealed, err := t.seal(outputs[0])
	if err != nil {
		return nil, err
	}
	streams, err := outputs.keep(producer, t.bounds.streamBytes)
	if err != nil {
		return nil, err
	}
	kernel, err := kernelRelease()
	if err != nil {
		return nil, err
	}
	message := []byte(`{"v":1,` + sealed.fields() + "," + streams + `,"kernel":` + asciiJSON(kernel) + "}")
	return message, writeFile(producer, sealedFile, message)
}

func readNote(folder, name string) ([]byte, error) {
	root, err := openFolder(folder)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return readRegular(root, name, noteBytes)
}

// collect keeps the streams of a check and the changed paths of a patch and returns the message.
func (t *courierTask) collect() ([]byte, error) {
	verification := path.Join(volumes, "verification")
	if err := t.keepChanges(verification); err != nil {
		return nil, err
	}
	outputs, err := openOutputs(path.Join(volumes, "output"), t.bounds)
	if err != nil {
		return nil, err
	}
	defer outputs.close()
	streams, err := outputs.keep(verification, t.bounds.streamBytes)
	if err != nil {
		return nil, err
	}
	kernel, err := kernelRelease()
	return []byte(`{"v":1,` + streams + `,"kernel":` + asciiJSON(kernel) + "}"), err
}

// keepChanges keeps the list that supervise wrote, if any; the operator knows when to read it.
func (t *courierTask) keepChanges(verification string) error {
	output, err := openFolder(path.Join(volumes, "output"))
	if err != nil {
		return err
	}
	defer output.Close()
	err = copyRegular(output, changedFile, t.bounds.patchBytes, verification, changedFile)
	if isUnreadable(err) {
		return nil
	}
	return err
}

func kernelRelease() (string, error) {
	var names unix.Utsname
	if err := unix.Uname(&names); err != nil {
		return "", err
	}
	return unix.ByteSliceToString(names.Release[:]), nil
}
