package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Why there is no candidate: failure reasons of the agent.
const (
	problemMissing  = "candidate_missing"
	problemTooLarge = "candidate_too_large"
	problemInvalid  = "candidate_invalid"
)

// unreadableError says that what the agent left is no candidate.
type unreadableError struct{ problem, text string }

func (e *unreadableError) Error() string { return e.text }

func unreadable(problem, form string, values ...any) error {
	return &unreadableError{problem, fmt.Sprintf(form, values...)}
}

func isUnreadable(err error) bool {
	var refused *unreadableError
	return errors.As(err, &refused)
}

func isMissing(err error) bool {
	var refused *unreadableError
	return errors.As(err, &refused) && refused.problem == problemMissing
}

// nodeErrors are errors of the node and its disks: they say nothing about what the agent left, and a
// candidate that fits its bounds does not cause them.
var nodeErrors = []unix.Errno{
	unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.EROFS, unix.ESTALE, unix.ENOMEM, unix.EMFILE, unix.ENFILE,
}

func nodeError(err error) (unix.Errno, bool) {
	var errno unix.Errno
	return errno, errors.As(err, &errno) && slices.Contains(nodeErrors, errno)
}

// strerror is an error as the C library spells it.
func strerror(errno unix.Errno) string {
	text := errno.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}

const (
	// beneath keeps the kernel from following any link and from leaving the folder.
	beneath = unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH

	folderFlags = unix.O_RDONLY | unix.O_DIRECTORY
	// fileFlags do not block: the opening of a FIFO must return.
	fileFlags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY

	draftFlags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL
	fileMode   = 0o644 // of files that Pods of other users read

	copyBytes = 1 << 18
)

// Replaced in tests of disks that fail and of trees that change.
var (
	openat2    = unix.Openat2
	fstatat    = unix.Fstatat
	readlinkat = unix.Readlinkat
	readNames  = (*os.File).Readdirnames
	fsync      = unix.Fsync
)

// openBeneath opens an entry of a folder without following a link. A kernel or sandbox without openat2 is
// asked for the entry itself, which is no less: a name has one component.
func openBeneath(parent *os.File, name string, flags int) (*os.File, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_NOFOLLOW | unix.O_CLOEXEC), Resolve: beneath}
	for {
		descriptor, err := openat2(int(parent.Fd()), name, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(descriptor), name), nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
			return openAt(parent, name, flags, 0)
		default:
			return nil, &os.PathError{Op: "openat2", Path: name, Err: err}
		}
	}
}

// openRegular opens a regular file below a folder, one component at a time.
func openRegular(root *os.File, name string) (*os.File, error) {
	components := strings.Split(name, "/")
	last := len(components) - 1
	parent := root
	for _, component := range components[:last] {
		child, err := enterUntrusted(parent, component, name)
		if parent != root {
			_ = parent.Close()
		}
		if err != nil {
			return nil, err
		}
		parent = child
	}
	file, err := openRegularAt(parent, components[last], name)
	if parent != root {
		_ = parent.Close()
	}
	return file, err
}

func enterUntrusted(parent *os.File, name, called string) (*os.File, error) {
	status, err := statAt(parent, name)
	if err != nil {
		return nil, refusal(err, called)
	}
	switch kindOf(status) {
	case unix.S_IFLNK:
		return nil, unreadable(problemInvalid, "a symbolic link is on the way to %s", called)
	case unix.S_IFDIR:
	default:
		return nil, unreadable(problemMissing, "%s does not exist", called)
	}
	child, err := openBeneath(parent, name, folderFlags)
	if err != nil {
		return nil, refusal(err, called)
	}
	return child, nil
}

// openRegularAt opens a regular file in a folder; messages call it by another name.
func openRegularAt(parent *os.File, name, called string) (*os.File, error) {
	status, err := statAt(parent, name)
	if err != nil {
		return nil, refusal(err, called)
	}
	if kindOf(status) != unix.S_IFREG {
		return nil, unreadable(problemInvalid, "%s is %s, not a regular file", called, kindName(kindOf(status)))
	}
	file, err := openBeneath(parent, name, fileFlags)
	if err != nil {
		return nil, refusal(err, called)
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = file.Close()
		return nil, unreadable(problemInvalid, "%s changed while it was opened", called)
	}
	return file, nil
}

func refusal(err error, called string) error {
	var errno unix.Errno
	if _, isOfNode := nodeError(err); isOfNode || !errors.As(err, &errno) {
		return err
	}
	if errno == unix.ENOENT || errno == unix.ENOTDIR {
		return unreadable(problemMissing, "%s does not exist", called)
	}
	return unreadable(problemInvalid, "%s cannot be read: %s", called, strerror(errno))
}

func kindName(kind uint32) string {
	switch kind {
	case unix.S_IFDIR:
		return "a folder"
	case unix.S_IFLNK:
		return "a symbolic link"
	case unix.S_IFIFO:
		return "a FIFO"
	case unix.S_IFSOCK:
		return "a socket"
	default:
		return "a device"
	}
}

// openBounded opens a regular file that has at most so many bytes, and returns a reader that refuses more.
func openBounded(root *os.File, name string, limit int64) (io.ReadCloser, error) {
	file, err := openRegular(root, name)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.Size() > limit {
		err = tooLong(name, limit)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return &boundedFile{file: file, name: name, limit: limit, left: limit}, nil
}

func tooLong(name string, limit int64) error {
	return unreadable(problemTooLarge, "%s has more than %d bytes", name, limit)
}

// boundedFile embeds no file: whatever copies from it has to go through Read.
type boundedFile struct {
	file        *os.File
	name        string
	limit, left int64
}

func (f *boundedFile) Read(data []byte) (int, error) {
	count, err := f.file.Read(data)
	if f.left -= int64(count); f.left < 0 {
		return 0, tooLong(f.name, f.limit)
	}
	return count, err
}

func (f *boundedFile) Close() error { return f.file.Close() }

func readRegular(root *os.File, name string, limit int64) ([]byte, error) {
	file, err := openBounded(root, name, limit)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(file)
}

func copyRegular(root *os.File, name string, limit int64, folder, target string) error {
	file, err := openBounded(root, name, limit)
	if err != nil {
		return err
	}
	defer file.Close()
	return writeNew(folder, target, func(draft io.Writer) error {
		_, err := io.CopyBuffer(draft, file, make([]byte, copyBytes))
		return err
	})
}

// writeNew writes a file into a folder that only we write to, so that after a crash it is there as a whole
// or not at all; what has its name is replaced.
func writeNew(folder, name string, write func(io.Writer) error) error {
	root, err := openFolder(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	draft := "." + name + ".new"
	if err := unlinkAt(root, draft); err != nil {
		return err
	}
	file, err := openAt(root, draft, draftFlags, fileMode)
	if err != nil {
		return err
	}
	err = write(file)
	if err == nil {
		err = errors.Join(unix.Fchmod(int(file.Fd()), fileMode), fsync(int(file.Fd())))
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, unlinkAt(root, draft))
	}
	if err := unix.Renameat(int(root.Fd()), draft, int(root.Fd()), name); err != nil {
		return err
	}
	return fsync(int(root.Fd()))
}

func writeFile(folder, name string, content []byte) error {
	return writeNew(folder, name, func(draft io.Writer) error {
		_, err := draft.Write(content)
		return err
	})
}

func writeBuffered(folder, name string, write func(*bufio.Writer) error) error {
	return writeNew(folder, name, func(draft io.Writer) error {
		buffer := bufio.NewWriterSize(draft, copyBytes)
		return errors.Join(write(buffer), buffer.Flush())
	})
}

func unlinkAt(root *os.File, name string) error {
	if err := unix.Unlinkat(int(root.Fd()), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}
