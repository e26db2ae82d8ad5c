// Package rootfs finds what commands changed in the root file system of their container, and checks what such a
// list of changes says.
//
// Before the commands the whole file system is recorded in the memory of PID 1, which no command can read or write:
// of each entry its name and a digest of its status. A command cannot set the time at which the kernel last saw a
// file change, so a file that has the same status in the end is the same file (decision 0121). Mounts are not part
// of the file system, and neither are the places that a specification excludes.
package rootfs

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/untrusted"
)

const (
	// maxRecorded entries of an image are recorded; with names of 40 bytes they take 180 MiB.
	maxRecorded = 3_000_000
	// maxDepth folders inside each other are read; each costs a descriptor. It is more than a candidate may have.
	maxDepth = 300

	fingerprintBytes = 16

	// garbagePercent keeps what is collected later than it could be a small part of the memory.
	garbagePercent = 20

	// clockTick is the longest time between two steps of the clock that stamps files.
	clockTick = 20 * time.Millisecond
)

// Kinds of records. They are in the order in which the tree is read, the entries of a folder behind it.
const (
	recordEnd byte = iota // of a folder's entries
	recordFolder
	recordClosed // a folder that could not be read
	recordOther
)

// kernelPlaces are never part of an image.
var kernelPlaces = []string{"/proc", "/sys", "/dev"}

// Snapshot is a file system as it was.
type Snapshot struct {
	root     string
	excluded []string
	stop     <-chan struct{}
	records  []byte
	count    int
}

// Take records a file system, but for its mounts and excluded places.
func Take(root string, excluded []string, stop <-chan struct{}) (*Snapshot, error) {
	defer debug.SetGCPercent(debug.SetGCPercent(garbagePercent))
	s := &Snapshot{root: root, excluded: excluded, stop: stop}
	places, err := s.places()
	if err != nil {
		return nil, err
	}
	folder, err := untrusted.OpenFolder(root)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	if err := s.take(folder, "", 0, places); err != nil {
		return nil, err
	}
	// The commands have the same memory limit as this process.
	s.records = bytes.Clone(s.records)
	debug.FreeOSMemory()
	// What is written within a step of the clock would look like what was recorded.
	time.Sleep(clockTick)
	return s, nil
}

// places are the paths that are passed over, seen from the root without a slash.
func (s *Snapshot) places() (map[string]bool, error) {
	mounts, err := untrusted.MountPoints()
	if err != nil {
		return nil, err
	}
	places := map[string]bool{}
	for _, place := range slices.Concat(kernelPlaces, s.excluded) {
		places[place[1:]] = true
	}
	for _, mount := range mounts {
		if mount != s.root && untrusted.IsBelow(mount, s.root) {
			places[relative(mount, s.root)] = true
		}
	}
	return places, nil
}

func relative(name, root string) string {
	if root == "/" {
		return name[1:]
	}
	return name[len(root)+1:]
}

func (s *Snapshot) take(folder *os.File, prefix string, depth int, places map[string]bool) error {
	names, err := listed(folder, maxRecorded-s.count)
	if err != nil {
		return err
	}
	for _, name := range names {
		if places[prefix+name] {
			continue
		}
		status, err := untrusted.StatAt(folder, name)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) {
			// Its folder may be listed and not be searched: no command of this user can change it.
			continue
		}
		if err != nil {
			return err
		}
		s.count++
		if untrusted.KindOf(status) != unix.S_IFDIR {
			s.add(recordOther, name, fingerprint(folder, name, status))
		} else if err := s.takeFolder(folder, prefix, name, status, depth, places); err != nil {
			return err
		}
	}
	return nil
}

func (s *Snapshot) takeFolder(
	parent *os.File, prefix, name string, status unix.Stat_t, depth int, places map[string]bool,
) error {
	if isClosed(s.stop) {
		return outcome.ErrStopped
	}
	child, err := untrusted.OpenOnMount(parent, name, untrusted.FolderFlags)
	if errors.Is(err, unix.EXDEV) {
		return nil
	}
	if errors.Is(err, unix.EACCES) || depth >= maxDepth {
		s.add(recordClosed, name, fingerprint(parent, name, status))
		return nil
	}
	if err != nil {
		return err
	}
	defer child.Close()
	s.add(recordFolder, name, fingerprint(parent, name, status))
	if err := s.take(child, prefix+name+"/", depth+1, places); err != nil {
		return err
	}
	s.records = append(s.records, recordEnd)
	return nil
}

func isClosed(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

func (s *Snapshot) add(kind byte, name string, print [fingerprintBytes]byte) {
	s.records = append(s.records, kind)
	s.records = binary.AppendUvarint(s.records, uint64(len(name)))
	s.records = append(s.records, name...)
	s.records = append(s.records, print[:]...)
}

// record is an entry as it was.
type record struct {
	kind  byte
	name  []byte
	print [fingerprintBytes]byte
	next  int // where the record behind it begins
}

func (s *Snapshot) at(position int) record {
	if position >= len(s.records) || s.records[position] == recordEnd {
		return record{kind: recordEnd, next: position + 1}
	}
	size, width := binary.Uvarint(s.records[position+1:])
	begin := position + 1 + width
	end := begin + int(size)
	found := record{kind: s.records[position], name: s.records[begin:end], next: end + fingerprintBytes}
	copy(found.print[:], s.records[end:])
	return found
}

// behind is the position behind an entry and all that is below it.
func (s *Snapshot) behind(entry record) int {
	position := entry.next
	if entry.kind != recordFolder {
		return position
	}
	for open := 1; open > 0; {
		found := s.at(position)
		switch found.kind {
		case recordFolder:
			open++
		case recordEnd:
			open--
		}
		position = found.next
	}
	return position
}

// fingerprint is a digest of what tells an entry from a changed one. Of a folder it is what a candidate may change
// of it: its times change with what it holds.
func fingerprint(parent *os.File, name string, status unix.Stat_t) [fingerprintBytes]byte {
	facts := make([]byte, 0, 128)
	add := func(values ...uint64) {
		for _, value := range values {
			facts = binary.LittleEndian.AppendUint64(facts, value)
		}
	}
	add(uint64(status.Mode), uint64(status.Uid), uint64(status.Gid))
	if kind := untrusted.KindOf(status); kind != unix.S_IFDIR {
		add(status.Ino, uint64(status.Size), status.Rdev,
			uint64(status.Ctim.Sec), uint64(status.Ctim.Nsec), uint64(status.Mtim.Sec), uint64(status.Mtim.Nsec))
		if kind == unix.S_IFLNK {
			// One that cannot be read has its status alone.
			target, _ := untrusted.ReadLinkAt(parent, name)
			facts = append(facts, target...)
		}
	}
	sum := sha256.Sum256(facts)
	return [fingerprintBytes]byte(sum[:])
}

const listBatch = 4096

var errManyNames = errors.New("too many names")

// listed returns the names in a folder in their byte order, at most so many.
func listed(folder *os.File, most int) ([]string, error) {
	var names []string
	for {
		some, err := untrusted.ReadNames(folder, listBatch)
		names = append(names, some...)
		if len(names) > most {
			return nil, fmt.Errorf("%s: %w, more than %d", folder.Name(), errManyNames, most)
		}
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// compare orders a name and one of a record.
func compare(name string, recorded []byte) int { return bytes.Compare([]byte(name), recorded) }
