package rootfs

import (
	"bufio"
	"errors"
	"os"
	"runtime/debug"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/bundle"
	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/untrusted"
)

// Bounds of changes.
type Bounds struct{ Bytes, Entries int64 }

// Words of a note that stands in place of changes that are too large.
const (
	TooManyBytes   = "bytes"
	TooManyEntries = "entries"
)

var (
	errBytes   = errors.New(TooManyBytes)
	errEntries = errors.New(TooManyEntries)
)

const (
	allModes = 0o7777
	// ownerReads is what the owner of a folder needs to read what is in it.
	ownerReads = 0o500
	// maxPathBytes is the kernel's PATH_MAX.
	maxPathBytes = unix.PathMax
)

// Write writes what changed since as an archive into a folder that no command can reach any more, or a note in its
// place that says which bound it exceeds. What is there is written as it is; Seal says what of it is kept.
func (s *Snapshot) Write(folder *os.File, bounds Bounds) error {
	return write(folder, func(archive *bundle.Writer) error { return s.archive(archive, bounds) })
}

// write leaves an archive, or a note about the bound that it exceeds.
func write(folder *os.File, fill func(*bundle.Writer) error) error {
	defer debug.SetGCPercent(debug.SetGCPercent(garbagePercent))
	for _, name := range []string{outcome.RootFile, outcome.RootNote} {
		if err := untrusted.RemoveAt(folder, name, 0); err != nil {
			return err
		}
	}
	file, err := untrusted.CreateAt(folder, outcome.RootFile)
	if err != nil {
		return err
	}
	buffer := bufio.NewWriterSize(file, untrusted.CopyBytes)
	archive := bundle.New(buffer)
	err = fill(archive)
	if err == nil {
		err = archive.End()
	}
	err = errors.Join(err, buffer.Flush(), file.Close())
	if !errors.Is(err, errBytes) && !errors.Is(err, errEntries) {
		return err
	}
	if err := untrusted.RemoveAt(folder, outcome.RootFile, 0); err != nil {
		return err
	}
	note := TooManyBytes
	if errors.Is(err, errEntries) {
		note = TooManyEntries
	}
	return untrusted.ReplaceFileAt(folder, outcome.RootNote, []byte(note))
}

func (s *Snapshot) archive(archive *bundle.Writer, bounds Bounds) error {
	places, err := s.places()
	if err != nil {
		return err
	}
	root, err := untrusted.OpenFolder(s.root)
	if err != nil {
		return err
	}
	defer root.Close()
	reading := &changes{s, archive, places, bounds, 0, map[untrusted.Inode]string{}, isKept}
	return reading.folder(root, "", 0, true)
}

// changes is the second reading of a file system, beside the records of the first one.
type changes struct {
	before   *Snapshot
	archive  *bundle.Writer
	places   map[string]bool
	left     Bounds
	position int // of the next record
	linked   map[untrusted.Inode]string
	keeps    func(path string) bool
}

func isKept(string) bool { return true }

// folder reads a folder beside the records of its entries, if there are any.
func (c *changes) folder(folder *os.File, prefix string, depth int, isKnown bool) error {
	if isClosed(c.before.stop) {
		return outcome.ErrStopped
	}
	// More names than this cannot all be old or within the bound.
	names, err := listed(folder, c.before.count+int(c.left.Entries)+len(c.places))
	if errors.Is(err, errManyNames) {
		return errEntries
	}
	if err != nil {
		return err
	}
	for {
		known := record{kind: recordEnd}
		if isKnown {
			known = c.before.at(c.position)
		}
		order := 0
		switch {
		case len(names) == 0 && known.kind == recordEnd:
			if isKnown {
				c.position = known.next
			}
			return nil
		case len(names) == 0:
			order = 1
		case known.kind == recordEnd:
			order = -1
		default:
			order = compare(names[0], known.name)
		}
		if order > 0 {
			if err := c.gone(prefix, known); err != nil {
				return err
			}
			continue
		}
		var old *record
		if order == 0 {
			old = &known
		}
		if err := c.entry(folder, prefix, names[0], old, depth); err != nil {
			return err
		}
		names = names[1:]
	}
}

// gone notes that an entry is not there any more.
func (c *changes) gone(prefix string, known record) error {
	c.position = c.before.behind(known)
	path := prefix + string(known.name)
	if c.places[path] {
		return nil
	}
	return c.add(bundle.Entry{Name: path, Kind: bundle.Whiteout})
}

// entry compares an entry with what it was.
func (c *changes) entry(folder *os.File, prefix, name string, old *record, depth int) error {
	path := prefix + name
	if c.places[path] || !c.keeps(path) {
		c.pass(old)
		return nil
	}
	status, err := untrusted.StatAt(folder, name)
	if errors.Is(err, unix.EACCES) {
		c.pass(old)
		return nil
	}
	if err != nil {
		return err
	}
	if untrusted.KindOf(status) == unix.S_IFDIR {
		return c.subfolder(folder, path, name, status, old, depth)
	}
	isSame := old != nil && old.kind == recordOther && old.print == fingerprint(folder, name, status)
	c.pass(old)
	if isSame {
		return nil
	}
	return c.changed(folder, path, name, status)
}

// pass goes on behind the record of an entry and of what was below it.
func (c *changes) pass(old *record) {
	if old != nil {
		c.position = c.before.behind(*old)
	}
}

func (c *changes) subfolder(parent *os.File, path, name string, status unix.Stat_t, old *record, depth int) error {
	if status.Mode&ownerReads != ownerReads {
		// Its owner can read it after this; a failure shows below. A mount is not changed: it is among the places.
		_ = untrusted.ChangeMode(parent, name, status.Mode|untrusted.OwnerAll)
	}
	child, err := untrusted.OpenOnMount(parent, name, untrusted.FolderFlags)
	if errors.Is(err, unix.EXDEV) {
		c.pass(old)
		return nil
	}
	if err != nil && !errors.Is(err, unix.EACCES) {
		return err
	}
	if old == nil || old.kind == recordOther || old.print != fingerprint(parent, name, status) {
		header := entryOf(path+"/", status)
		header.Kind = bundle.Folder
		if err := c.add(header); err != nil {
			return err
		}
	}
	if err != nil || depth >= maxDepth {
		// What cannot be read now is what it was.
		c.pass(old)
		return closeIf(child)
	}
	defer child.Close()
	isKnown := old != nil && old.kind == recordFolder
	if old != nil {
		c.position = old.next
	}
	return c.folder(child, path+"/", depth+1, isKnown)
}

func closeIf(file *os.File) error {
	if file == nil {
		return nil
	}
	return file.Close()
}

func entryOf(name string, status unix.Stat_t) bundle.Entry {
	return bundle.Entry{
		Name: name, Mode: status.Mode & allModes, UID: status.Uid, GID: status.Gid, Modified: status.Mtim,
	}
}

// changed writes an entry that is no folder.
func (c *changes) changed(parent *os.File, path, name string, status unix.Stat_t) error {
	header := entryOf(path, status)
	switch untrusted.KindOf(status) {
	case unix.S_IFREG:
		return c.file(parent, header, name, status)
	case unix.S_IFLNK:
		target, err := untrusted.ReadLinkAt(parent, name)
		if err != nil {
			return err
		}
		header.Kind, header.Link = bundle.Link, target
	case unix.S_IFIFO:
		header.Kind = bundle.FIFO
	case unix.S_IFSOCK:
		header.Kind = bundle.Socket
	default:
		header.Kind = bundle.Device
	}
	return c.add(header)
}

// file writes a regular file; one with several names is written once.
func (c *changes) file(parent *os.File, header bundle.Entry, name string, status unix.Stat_t) error {
	inode := untrusted.Inode{Device: status.Dev, Number: status.Ino}
	if first, isKnown := c.linked[inode]; isKnown && status.Nlink > 1 {
		header.Kind, header.Link = bundle.HardLink, first
		return c.add(header)
	}
	file, err := untrusted.OpenOnMount(parent, name, untrusted.FileFlags)
	if errors.Is(err, unix.EACCES) {
		_ = untrusted.ChangeMode(parent, name, status.Mode|untrusted.OwnerAll)
		file, err = untrusted.OpenOnMount(parent, name, untrusted.FileFlags)
	}
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EXDEV) {
		header.Kind = bundle.Unreadable
		return c.add(header)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	var parts []untrusted.Extent
	if untrusted.IsSparse(status) {
		if parts, err = untrusted.Extents(file, status.Size); err != nil {
			return err
		}
	}
	if err := c.take(header, untrusted.Stored(status.Size, parts)); err != nil {
		return err
	}
	header.Kind = bundle.File
	if status.Nlink > 1 && utf8.ValidString(header.Name) && len(header.Name) <= maxPathBytes {
		c.linked[inode] = header.Name
	}
	_, err = c.archive.AddFile(header, file, status.Size, parts)
	return err
}

// take counts an entry against the bounds.
func (c *changes) take(header bundle.Entry, size int64) error {
	c.left.Entries--
	if c.left.Entries < 0 {
		return errEntries
	}
	names := int64(len(strings.TrimSuffix(header.Name, "/")) + len(header.Link))
	// The sum of the two may be more than a number holds.
	if size > c.left.Bytes || names > c.left.Bytes-size {
		return errBytes
	}
	c.left.Bytes -= size + names
	return nil
}

func (c *changes) add(header bundle.Entry) error {
	if err := c.take(header, 0); err != nil {
		return err
	}
	return c.archive.Begin(header)
}
