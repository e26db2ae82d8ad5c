package untrusted

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// MaxDepth bounds recursion, and with it open descriptors, in trees that we walk.
	MaxDepth = 512
	// listBatch entries are read at a time, so that a huge folder needs no memory.
	listBatch = 1024
	// OwnerAll is what the owner of a folder needs to change its entries.
	OwnerAll = 0o700
)

// ErrTooDeep is the end of a walk at MaxDepth.
var ErrTooDeep = fmt.Errorf("deeper than %d folders", MaxDepth)

// OpenFolder opens a folder whose path is trusted (a mount point, before any command ran).
func OpenFolder(name string) (*os.File, error) {
	return os.OpenFile(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// OpenFolderAt opens a folder inside an untrusted one without following a link.
func OpenFolderAt(parent *os.File, name string) (*os.File, error) {
	return OpenAt(parent, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// OpenFileAt opens a regular file for reading without following a link or waiting for a FIFO.
func OpenFileAt(parent *os.File, name string) (*os.File, error) {
	file, err := OpenAt(parent, name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = file.Close()
		return nil, errors.Join(err, fmt.Errorf("%q is not a regular file", name))
	}
	return file, nil
}

// OpenAt opens an entry of a folder without following a link.
func OpenAt(parent *os.File, name string, flags int, mode uint32) (*os.File, error) {
	for {
		fd, err := unix.Openat(int(parent.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}

// StatAt returns the status of an entry itself, never of a link's target.
func StatAt(parent *os.File, name string) (unix.Stat_t, error) {
	var status unix.Stat_t
	err := Fstatat(int(parent.Fd()), name, &status, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return status, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	return status, nil
}

// KindOf is what an entry is: unix.S_IFREG, unix.S_IFDIR and so on.
func KindOf(status unix.Stat_t) uint32 {
	return status.Mode & unix.S_IFMT
}

// ReadLinkAt returns the target of a link.
func ReadLinkAt(parent *os.File, name string) (string, error) {
	buffer := make([]byte, unix.PathMax)
	count, err := Readlinkat(int(parent.Fd()), name, buffer)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: name, Err: err}
	}
	return string(buffer[:count]), nil
}

// EachEntry calls visit for every entry of a folder; visit may change the entry.
func EachEntry(folder *os.File, visit func(name string, status unix.Stat_t) error) error {
	return eachName(folder, func(name string) error {
		status, err := StatAt(folder, name)
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return err
		}
		return visit(name, status)
	})
}

// eachName calls visit for every name in a folder.
func eachName(folder *os.File, visit func(name string) error) error {
	for {
		names, err := ReadNames(folder, listBatch)
		for _, name := range names {
			if err := visit(name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// RemoveAt removes an entry with everything below it, following nothing.
func RemoveAt(parent *os.File, name string, depth int) error {
	err := unix.Unlinkat(int(parent.Fd()), name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return &os.PathError{Op: "remove", Path: name, Err: err}
	}
	if depth > MaxDepth {
		return ErrTooDeep
	}
	if err := emptyAt(parent, name, depth); err != nil {
		return err
	}
	if err := unix.Unlinkat(int(parent.Fd()), name, unix.AT_REMOVEDIR); err != nil {
		return &os.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}

// emptyAt removes what a folder holds. Names are read before any is removed: a folder that
// changes while it is read may show only some of its entries.
func emptyAt(parent *os.File, name string, depth int) error {
	status, err := StatAt(parent, name)
	if err != nil || KindOf(status) != unix.S_IFDIR {
		return errors.Join(err, fmt.Errorf("cannot remove %q", name))
	}
	// A read-only folder can be emptied by its owner only after this; a failure shows below.
	_ = ChangeMode(parent, name, status.Mode|OwnerAll)
	folder, err := OpenFolderAt(parent, name)
	if err != nil {
		return err
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, child := range names {
		if err := RemoveAt(folder, child, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// ReplaceFileAt writes a file that nobody else has open, in place of whatever has its name.
func ReplaceFileAt(folder *os.File, name string, content []byte) error {
	file, err := CreateAt(folder, name)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}

// CreateAt opens a new file in place of whatever has its name.
func CreateAt(folder *os.File, name string) (*os.File, error) {
	if err := RemoveAt(folder, name, 0); err != nil {
		return nil, err
	}
	return OpenAt(folder, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o644)
}

// IsBelow reports whether a clean path is another one or lies below it.
func IsBelow(name, parent string) bool {
	return name == parent || parent == "/" || strings.HasPrefix(name, parent+"/")
}

const mountTable = "/proc/self/mountinfo"

// MountPoints returns where something is mounted in this mount namespace.
func MountPoints() ([]string, error) {
	table, err := os.Open(mountTable)
	if err != nil {
		return nil, err
	}
	defer table.Close()
	var mounts []string
	lines := bufio.NewScanner(table)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			return nil, errors.New("the table of mounts is not readable")
		}
		mounts = append(mounts, mountPoint(fields[4]))
	}
	return mounts, lines.Err()
}

// mountPoint is a path without the escapes of the mount table.
func mountPoint(text string) string {
	for _, character := range []byte(" \t\n\\") {
		text = strings.ReplaceAll(text, `\`+strconv.FormatInt(int64(character)+0o1000, 8)[1:], string(character))
	}
	return text
}
