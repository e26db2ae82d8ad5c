package untrusted

import (
	"bufio"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/outcome"
)

const (
	// FolderReadable is what everybody needs of a folder to read what it holds.
	FolderReadable = 0o755
	fileReadable   = 0o644
	// allModes are the bits of a mode; KeptModes those that reach the verifier.
	allModes  = 0o7777
	KeptModes = 0o1777
	// modesBytes are those of a list of modes: as many as a workspace's names may have, with the mode of
	// each. It has room in the margin of the volume for streams.
	modesBytes = maxNamesBytes + maxNamesBytes/8
)

// Modes are those that entries had before OpenModes, by the hash of their path.
type Modes struct {
	seed  maphash.Seed
	known map[uint64]uint32
}

// RootPath is the path of a tree's own folder.
const RootPath = "."

// OpenModes makes a tree readable for the courier, which is another user without capabilities
// (u+rwX, a+rX). It is called when no other process is left. What does not belong to us keeps
// its mode, and so does what lies deeper than the courier looks. The earlier mode of each entry that is
// changed is passed to changed with the entry's path in the tree.
func OpenModes(folder *os.File, changed func(path string, mode uint32)) {
	if before, isChanged := OpenFolderMode(folder); isChanged {
		changed(RootPath, before)
	}
	opener := modeOpener{changed, map[Inode]uint32{}}
	opener.openModes(folder, "", 0)
}

type modeOpener struct {
	changed func(path string, mode uint32)
	linked  map[Inode]uint32 // earlier modes of files with several names: each of the names has it
}

// maxLinked is far above what a workspace may hold.
const maxLinked = 1 << 20

func (o modeOpener) openModes(folder *os.File, prefix string, depth int) {
	_ = EachEntry(folder, func(name string, status unix.Stat_t) error {
		switch kind := KindOf(status); {
		case kind == unix.S_IFREG:
			o.openFileMode(folder, prefix, name, status)
		case kind == unix.S_IFDIR && depth < MaxDepth:
			o.openFolderModes(folder, prefix, name, status, depth)
		}
		return nil
	})
}

func (o modeOpener) openFileMode(folder *os.File, prefix, name string, status unix.Stat_t) {
	inode := inodeOf(status)
	if before, isKnown := o.linked[inode]; isKnown {
		o.changed(prefix+name, before)
		return
	}
	if status.Mode|fileReadable == status.Mode || ChangeMode(folder, name, status.Mode|fileReadable) != nil {
		return
	}
	o.changed(prefix+name, status.Mode&allModes)
	if inode != (Inode{}) && len(o.linked) < maxLinked {
		o.linked[inode] = status.Mode & allModes
	}
}

// OpenFolderMode opens the mode of the folder alone and returns the earlier one. Its status is read by
// descriptor: a closed folder cannot be searched.
func OpenFolderMode(folder *os.File) (uint32, bool) {
	var status unix.Stat_t
	if unix.Fstat(int(folder.Fd()), &status) != nil || status.Mode|FolderReadable == status.Mode {
		return 0, false
	}
	before := status.Mode & allModes
	return before, unix.Fchmod(int(folder.Fd()), before|FolderReadable) == nil
}

func (o modeOpener) openFolderModes(parent *os.File, prefix, name string, status unix.Stat_t, depth int) {
	if status.Mode|FolderReadable != status.Mode && ChangeMode(parent, name, status.Mode|FolderReadable) == nil {
		o.changed(prefix+name, status.Mode&allModes)
	}
	child, err := OpenFolderAt(parent, name)
	if err != nil {
		return
	}
	defer child.Close()
	o.openModes(child, prefix+name+"/", depth+1)
}

// ListModes opens the modes of a tree and lists the earlier ones in a folder of our own.
func ListModes(tree, folder *os.File) error {
	OpenFolderMode(folder)
	file, err := CreateAt(folder, outcome.ModesFile)
	if err != nil {
		return err
	}
	target, size := bufio.NewWriter(file), 0
	OpenModes(tree, func(path string, mode uint32) {
		// What is longer by one entry is refused as a whole.
		if size <= modesBytes {
			count, _ := fmt.Fprintf(target, "%04o %s\x00", mode, path)
			size += count
		}
	})
	return errors.Join(target.Flush(), file.Close())
}

// ReadModes reads the list that ListModes wrote, if there is one. It is as untrusted as the tree itself.
func ReadModes(folder *os.File, entries int64) (Modes, error) {
	modes := Modes{maphash.MakeSeed(), map[uint64]uint32{}}
	file, err := OpenBounded(folder, outcome.ModesFile, modesBytes)
	if IsMissing(err) {
		return modes, nil
	}
	if err != nil {
		return modes, err
	}
	defer file.Close()
	source := bufio.NewReader(file)
	for {
		record, err := source.ReadString(0)
		if errors.Is(err, io.EOF) {
			return modes, nil
		}
		if err != nil {
			return modes, err
		}
		text, path, _ := strings.Cut(record[:len(record)-1], " ")
		if mode, err := strconv.ParseUint(text, 8, 12); err == nil {
			modes.known[maphash.String(modes.seed, path)] = uint32(mode)
		}
		if int64(len(modes.known)) > entries+1 { // and the tree's root
			return modes, tooLarge("%d entries", entries)
		}
	}
}

// of is the mode that an entry had when no process was left.
func (m Modes) of(path string, status unix.Stat_t) uint32 {
	if len(m.known) == 0 {
		return status.Mode & allModes
	}
	if before, isKnown := m.known[maphash.String(m.seed, path)]; isKnown {
		return before
	}
	return status.Mode & allModes
}

// ChangeMode changes an entry that is known to be no link. Kernels before 6.6 cannot be told
// not to follow one; there the entry cannot change in between, because nobody else is left.
func ChangeMode(parent *os.File, name string, mode uint32) error {
	err := unix.Fchmodat(int(parent.Fd()), name, mode&allModes, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return unix.Fchmodat(int(parent.Fd()), name, mode&allModes, 0)
	}
	return err
}
