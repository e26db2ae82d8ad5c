package main

import (
	"os"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

const (
	// maxFolders lie inside each other; each costs a descriptor while the tree is read.
	maxFolders = 256
	// maxPathBytes is the kernel's PATH_MAX: what is longer cannot be named by the programs that judge it.
	maxPathBytes = unix.PathMax
	// maxNamesBytes of paths and targets of links in a whole workspace are what a program that lists it
	// has in memory. An honest hundred thousand files have a third of it.
	maxNamesBytes = 32 << 20

	anyExecute = 0o111
)

// What an entry is, as it stands in the workspace's digest: git writes modes so.
const (
	kindFile    = "100644"
	kindProgram = "100755"
	kindFolder  = "040755"
	kindLink    = "120000"
)

// treeEntry is one entry that is kept. Its folder stays open until the next one is asked for.
type treeEntry struct {
	path, kind string
	parent     *os.File
	name       string
	size       int64  // of a file
	target     string // of a link
}

// walk is one reading of a tree in the byte order of its paths, within bounds and without following a link.
type walk struct {
	bounds  candidateBounds
	exclude map[string]bool // passed over with all that is below, without being counted
	dropped int64           // entries so far that are not kept
	seen    int64
	names   int64
	size    int64
	open    []*openedFolder
}

// openedFolder is a folder that is being read.
type openedFolder struct {
	file   *os.File
	prefix string // its path with a slash
	names  *nameList
	next   int
	// passed are folders whose content comes later, the next one last: in the order of paths other entries
	// may lie between (a, a-b, a/b).
	passed []int
}

func newWalk(root *os.File, bounds candidateBounds, exclude map[string]bool) (*walk, error) {
	w := &walk{bounds: bounds, exclude: exclude}
	file, err := openBeneath(root, ".", folderFlags)
	if err != nil {
		return nil, err
	}
	if err := w.list(file, ""); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *walk) close() {
	for _, folder := range w.open {
		_ = folder.file.Close()
	}
	w.open = nil
}

// each calls visit for every entry that is kept.
func (w *walk) each(visit func(treeEntry) error) error {
	defer w.close()
	for len(w.open) > 0 {
		folder := w.open[len(w.open)-1]
		var err error
		if name, isNext := folder.content(); isNext {
			err = w.descend(folder, name)
		} else if folder.next < folder.names.count() {
			err = w.pass(folder, visit)
		} else {
			_ = folder.file.Close()
			w.open = w.open[:len(w.open)-1]
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// content returns the passed folder whose content is next.
func (f *openedFolder) content() (string, bool) {
	last := len(f.passed) - 1
	if last < 0 {
		return "", false
	}
	name := string(f.names.at(f.passed[last]))
	if f.next < f.names.count() && string(f.names.at(f.next)) < name+"/" {
		return "", false
	}
	f.passed = f.passed[:last]
	return name, true
}

func (w *walk) pass(folder *openedFolder, visit func(treeEntry) error) error {
	index := folder.next
	folder.next++
	entry, err := w.entry(folder, string(folder.names.at(index)))
	if err != nil {
		if _, isOfNode := nodeError(err); isOfNode || isUnreadable(err) {
			return err
		}
		w.dropped++
		return nil
	}
	if entry.kind == "" {
		w.dropped++
		return nil
	}
	if entry.kind == kindFolder {
		folder.passed = append(folder.passed, index)
	}
	return visit(entry)
}

func (w *walk) list(file *os.File, prefix string) error {
	folder := &openedFolder{file: file, prefix: prefix, names: &nameList{}}
	w.open = append(w.open, folder)
	err := eachName(file, func(name string) error {
		counts, err := w.counts(prefix + name)
		if counts {
			folder.names.add(name)
		}
		return err
	})
	folder.names.sort()
	return err
}

// counts counts an entry; false for one that is passed over or has a name that cannot be kept.
func (w *walk) counts(path string) (bool, error) {
	isText := utf8.ValidString(path)
	if isText && w.exclude[path] {
		return false, nil
	}
	if !isText {
		w.dropped++
	}
	w.seen++
	if w.seen > w.bounds.workspaceFiles {
		return false, tooLarge("%d entries", w.bounds.workspaceFiles)
	}
	if len(path) > maxPathBytes {
		return false, tooLarge("%d bytes in one path", maxPathBytes)
	}
	return isText, w.countName(len(path))
}

func (w *walk) countName(size int) error {
	w.names += int64(size)
	if w.names > maxNamesBytes {
		return tooLarge("%d bytes of names", maxNamesBytes)
	}
	return w.measure(int64(size))
}

func (w *walk) measure(size int64) error {
	// A sparse file may have the largest size there is: the sum would overflow.
	if size > w.bounds.workspaceBytes-w.size {
		return tooLarge("%d bytes", w.bounds.workspaceBytes)
	}
	w.size += size
	return nil
}

func tooLarge(form string, bound int64) error {
	return unreadable(problemTooLarge, "the workspace has more than "+form, bound)
}

func (w *walk) descend(parent *openedFolder, name string) error {
	if len(w.open) >= maxFolders {
		return tooLarge("%d folders inside each other", maxFolders)
	}
	file, err := openBeneath(parent.file, name, folderFlags)
	if _, isOfNode := nodeError(err); isOfNode {
		return err
	}
	if err != nil {
		return nil // it was a folder a moment ago and cannot be looked into any more
	}
	return w.list(file, parent.prefix+name+"/")
}

// entry returns an entry as it is kept, without a kind where it is not.
func (w *walk) entry(folder *openedFolder, name string) (treeEntry, error) {
	entry := treeEntry{path: folder.prefix + name, parent: folder.file, name: name}
	status, err := statAt(folder.file, name)
	if err != nil {
		return entry, err
	}
	switch kindOf(status) {
	case unix.S_IFDIR:
		child, err := openBeneath(folder.file, name, folderFlags)
		if err != nil {
			return entry, err
		}
		entry.kind = kindFolder
		return entry, child.Close()
	case unix.S_IFREG:
		entry.kind, entry.size = kindFile, status.Size
		if status.Mode&anyExecute != 0 {
			entry.kind = kindProgram
		}
		return entry, w.measure(status.Size)
	case unix.S_IFLNK:
		return w.link(entry)
	default:
		return entry, nil
	}
}

func (w *walk) link(entry treeEntry) (treeEntry, error) {
	target, err := readLinkAt(entry.parent, entry.name)
	if err != nil {
		return entry, err
	}
	if err := w.countName(len(target)); err != nil {
		return entry, err
	}
	if utf8.ValidString(target) && staysInside(entry.path, target) {
		entry.kind, entry.target = kindLink, target
	}
	return entry, nil
}
