// Package untrusted reads and changes trees that untrusted code may have made or may still be changing: no link
// is followed, and what is read has bounds.
package untrusted

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/outcome"
)

// Why there is no candidate: failure reasons of the agent.
const (
	ProblemMissing  = "candidate_missing"
	ProblemTooLarge = "candidate_too_large"
	ProblemInvalid  = "candidate_invalid"
)

// UnreadableError says that what the agent left is no candidate.
type UnreadableError struct{ Problem, Text string }

func (e *UnreadableError) Error() string { return e.Text }

// Unreadable is an UnreadableError with a problem and a message.
func Unreadable(problem, form string, values ...any) error {
	return &UnreadableError{problem, fmt.Sprintf(form, values...)}
}

// IsUnreadable reports whether what was left is no candidate.
func IsUnreadable(err error) bool {
	var refused *UnreadableError
	return errors.As(err, &refused)
}

// IsMissing reports whether nothing was left under the name.
func IsMissing(err error) bool {
	var refused *UnreadableError
	return errors.As(err, &refused) && refused.Problem == ProblemMissing
}

// nodeErrors are errors of the node and its disks: they say nothing about what the agent left, and a
// candidate that fits its bounds does not cause them.
var nodeErrors = []unix.Errno{
	unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.EROFS, unix.ESTALE, unix.ENOMEM, unix.EMFILE, unix.ENFILE,
}

// NodeError returns the error of the node that an error stands for, if it does.
func NodeError(err error) (unix.Errno, bool) {
	var errno unix.Errno
	return errno, errors.As(err, &errno) && slices.Contains(nodeErrors, errno)
}

// Strerror is an error as the C library spells it.
func Strerror(errno unix.Errno) string {
	text := errno.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}

const (
	// beneath keeps the kernel from following any link and from leaving the folder.
	beneath = unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH

	// FolderFlags open a folder to read it.
	FolderFlags = unix.O_RDONLY | unix.O_DIRECTORY
	// FileFlags do not block: the opening of a FIFO must return.
	FileFlags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY

	draftFlags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL
	FileMode   = 0o644 // of files that Pods of other users read

	// CopyBytes are in memory of a file that is copied.
	CopyBytes = 1 << 18
)

// Replaced in tests of disks that fail and of trees that change.
var (
	Openat2    = unix.Openat2
	Fstatat    = unix.Fstatat
	Readlinkat = unix.Readlinkat
	ReadNames  = (*os.File).Readdirnames
	Fsync      = unix.Fsync
)

// OpenBeneath opens an entry of a folder without following a link. A kernel or sandbox without openat2 is
// asked for the entry itself, which is no less: a name has one component.
func OpenBeneath(parent *os.File, name string, flags int) (*os.File, error) {
	return openResolved(parent, name, flags, beneath)
}

// OpenOnMount is OpenBeneath for an entry on the same mount; another mount is the error EXDEV, where openat2 is there.
func OpenOnMount(parent *os.File, name string, flags int) (*os.File, error) {
	return openResolved(parent, name, flags, beneath|unix.RESOLVE_NO_XDEV)
}

func openResolved(parent *os.File, name string, flags int, resolve uint64) (*os.File, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_NOFOLLOW | unix.O_CLOEXEC), Resolve: resolve}
	for {
		descriptor, err := Openat2(int(parent.Fd()), name, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(descriptor), name), nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
			return OpenAt(parent, name, flags, 0)
		default:
			return nil, &os.PathError{Op: "openat2", Path: name, Err: err}
		}
	}
}

// OpenRegular opens a regular file below a folder, one component at a time.
func OpenRegular(root *os.File, name string) (*os.File, error) {
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
	file, err := OpenRegularAt(parent, components[last], name)
	if parent != root {
		_ = parent.Close()
	}
	return file, err
}

func enterUntrusted(parent *os.File, name, called string) (*os.File, error) {
	status, err := StatAt(parent, name)
	if err != nil {
		return nil, refusal(err, called)
	}
	switch KindOf(status) {
	case unix.S_IFLNK:
		return nil, Unreadable(ProblemInvalid, "a symbolic link is on the way to %s", called)
	case unix.S_IFDIR:
	default:
		return nil, Unreadable(ProblemMissing, "%s does not exist", called)
	}
	child, err := OpenBeneath(parent, name, FolderFlags)
	if err != nil {
		return nil, refusal(err, called)
	}
	return child, nil
}

// OpenRegularAt opens a regular file in a folder; messages call it by another name.
func OpenRegularAt(parent *os.File, name, called string) (*os.File, error) {
	status, err := StatAt(parent, name)
	if err != nil {
		return nil, refusal(err, called)
	}
	if KindOf(status) != unix.S_IFREG {
		return nil, Unreadable(ProblemInvalid, "%s is %s, not a regular file", called, kindName(KindOf(status)))
	}
	file, err := OpenBeneath(parent, name, FileFlags)
	if err != nil {
		return nil, refusal(err, called)
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = file.Close()
		return nil, Unreadable(ProblemInvalid, "%s changed while it was opened", called)
	}
	return file, nil
}

func refusal(err error, called string) error {
	var errno unix.Errno
	if _, isOfNode := NodeError(err); isOfNode || !errors.As(err, &errno) {
		return err
	}
	if errno == unix.ENOENT || errno == unix.ENOTDIR {
		return Unreadable(ProblemMissing, "%s does not exist", called)
	}
	return Unreadable(ProblemInvalid, "%s cannot be read: %s", called, Strerror(errno))
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

// OpenBounded opens a regular file that has at most so many bytes, and returns a reader that refuses more.
func OpenBounded(root *os.File, name string, limit int64) (io.ReadCloser, error) {
	file, err := OpenRegular(root, name)
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
	return Unreadable(ProblemTooLarge, "%s has more than %d bytes", name, limit)
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

// ReadRegular returns the content of a regular file below a folder that has at most so many bytes.
func ReadRegular(root *os.File, name string, limit int64) ([]byte, error) {
	file, err := OpenBounded(root, name, limit)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(file)
}

// CopyRegular copies such a file into a folder of our own.
func CopyRegular(root *os.File, name string, limit int64, folder, target string) error {
	file, err := OpenBounded(root, name, limit)
	if err != nil {
		return err
	}
	defer file.Close()
	return WriteNew(folder, target, func(draft io.Writer) error {
		_, err := io.CopyBuffer(draft, file, make([]byte, CopyBytes))
		return err
	})
}

// WriteNew writes a file into a folder that only we write to, so that after a crash it is there as a whole
// or not at all; what has its name is replaced.
func WriteNew(folder, name string, write func(io.Writer) error) error {
	root, err := OpenFolder(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	draft := "." + name + ".new"
	if err := unlinkAt(root, draft); err != nil {
		return err
	}
	file, err := OpenAt(root, draft, draftFlags, FileMode)
	if err != nil {
		return err
	}
	err = write(file)
	if err == nil {
		err = errors.Join(unix.Fchmod(int(file.Fd()), FileMode), Fsync(int(file.Fd())))
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, unlinkAt(root, draft))
	}
	if err := unix.Renameat(int(root.Fd()), draft, int(root.Fd()), name); err != nil {
		return err
	}
	return Fsync(int(root.Fd()))
}

// WriteFile is WriteNew of bytes.
func WriteFile(folder, name string, content []byte) error {
	return WriteNew(folder, name, func(draft io.Writer) error {
		_, err := draft.Write(content)
		return err
	})
}

// WriteBuffered is WriteNew of many small pieces.
func WriteBuffered(folder, name string, write func(*bufio.Writer) error) error {
	return WriteNew(folder, name, func(draft io.Writer) error {
		buffer := bufio.NewWriterSize(draft, CopyBytes)
		return errors.Join(write(buffer), buffer.Flush())
	})
}

func unlinkAt(root *os.File, name string) error {
	if err := unix.Unlinkat(int(root.Fd()), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// TarBlock is the least that an entry takes in an archive.
const TarBlock = 512

// OfCandidate marks a failure as one at what the candidate holds, unless the node lacks something.
func OfCandidate(err error) error {
	if _, isOfNode := NodeError(err); err == nil || isOfNode {
		return err
	}
	return outcome.CandidateFailure(err)
}
