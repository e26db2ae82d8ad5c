package main

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

const (
	folderReadable = 0o755
	fileReadable   = 0o644
	anyExecutable  = 0o111
	allModes       = 0o7777
)

// openModes makes a tree readable for the courier, which is another user without capabilities
// (u+rwX, a+rX). It is called when no other process is left. What does not belong to us keeps
// its mode, and so does what lies deeper than the courier looks.
func openModes(folder *os.File, depth int) {
	openFolderMode(folder)
	_ = eachEntry(folder, func(name string, status unix.Stat_t) error {
		switch kindOf(status) {
		case unix.S_IFREG:
			wanted := status.Mode | fileReadable
			if status.Mode&anyExecutable != 0 {
				wanted |= anyExecutable
			}
			if wanted != status.Mode {
				_ = changeMode(folder, name, wanted)
			}
		case unix.S_IFDIR:
			openFolderModes(folder, name, status, depth)
		}
		return nil
	})
}

// openFolderMode opens the mode of the folder alone. Its status is read by descriptor: a closed
// folder cannot be searched.
func openFolderMode(folder *os.File) {
	var status unix.Stat_t
	if unix.Fstat(int(folder.Fd()), &status) == nil && status.Mode|folderReadable != status.Mode {
		_ = unix.Fchmod(int(folder.Fd()), status.Mode&allModes|folderReadable)
	}
}

func openFolderModes(parent *os.File, name string, status unix.Stat_t, depth int) {
	if depth >= maxDepth {
		return
	}
	if status.Mode|folderReadable != status.Mode {
		_ = changeMode(parent, name, status.Mode|folderReadable)
	}
	child, err := openFolderAt(parent, name)
	if err != nil {
		return
	}
	defer child.Close()
	openModes(child, depth+1)
}

// changeMode changes an entry that is known to be no link. Kernels before 6.6 cannot be told
// not to follow one; there the entry cannot change in between, because nobody else is left.
func changeMode(parent *os.File, name string, mode uint32) error {
	err := unix.Fchmodat(int(parent.Fd()), name, mode&allModes, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return unix.Fchmodat(int(parent.Fd()), name, mode&allModes, 0)
	}
	return err
}
