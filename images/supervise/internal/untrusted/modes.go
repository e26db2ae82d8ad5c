package untrusted

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// FolderReadable is what everybody needs of a folder to read what it holds.
	FolderReadable = 0o755
	fileReadable   = 0o644
	anyExecutable  = 0o111
	allModes       = 0o7777
)

// OpenModes makes a tree readable for the courier, which is another user without capabilities
// (u+rwX, a+rX). It is called when no other process is left. What does not belong to us keeps
// its mode, and so does what lies deeper than the courier looks.
func OpenModes(folder *os.File, depth int) {
	OpenFolderMode(folder)
	_ = EachEntry(folder, func(name string, status unix.Stat_t) error {
		switch KindOf(status) {
		case unix.S_IFREG:
			wanted := status.Mode | fileReadable
			if status.Mode&anyExecutable != 0 {
				wanted |= anyExecutable
			}
			if wanted != status.Mode {
				_ = ChangeMode(folder, name, wanted)
			}
		case unix.S_IFDIR:
			openFolderModes(folder, name, status, depth)
		}
		return nil
	})
}

// OpenFolderMode opens the mode of the folder alone. Its status is read by descriptor: a closed
// folder cannot be searched.
func OpenFolderMode(folder *os.File) {
	var status unix.Stat_t
	if unix.Fstat(int(folder.Fd()), &status) == nil && status.Mode|FolderReadable != status.Mode {
		_ = unix.Fchmod(int(folder.Fd()), status.Mode&allModes|FolderReadable)
	}
}

func openFolderModes(parent *os.File, name string, status unix.Stat_t, depth int) {
	if depth >= MaxDepth {
		return
	}
	if status.Mode|FolderReadable != status.Mode {
		_ = ChangeMode(parent, name, status.Mode|FolderReadable)
	}
	child, err := OpenFolderAt(parent, name)
	if err != nil {
		return
	}
	defer child.Close()
	OpenModes(child, depth+1)
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
