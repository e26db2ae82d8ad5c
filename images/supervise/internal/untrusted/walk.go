package untrusted

import (
	"os"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/specs"
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
	KindProgram = "100755"
	KindFolder  = "040755"
	KindLink    = "120000"
)

// TreeEntry is one entry that is kept. Its folder stays open until the next one is asked for.
type TreeEntry struct {
	Path, Kind string
	Parent     *os.File
	Name       string
	Size       int64  // of a file
	Target     string // of a link
}

// Walk is one reading of a tree in the byte order of its paths, within bounds and without following a link.
type Walk struct {
	bounds  specs.Bounds
	exclude map[string]bool // passed over with all that is below, without being counted
	Dropped int64           // entries so far that are not kept
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

// NewWalk begins to read a folder; what exclude names is passed over.
func NewWalk(root *os.File, bounds specs.Bounds, exclude map[string]bool) (*Walk, error) {
	w := &Walk{bounds: bounds, exclude: exclude}
	file, err := OpenBeneath(root, ".", FolderFlags)
	if err != nil {
		return nil, err
	}
	if err := w.list(file, ""); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *Walk) close() {
	for _, folder := range w.open {
		_ = folder.file.Close()
	}
	w.open = nil
}

// Each calls visit for every entry that is kept.
func (w *Walk) Each(visit func(TreeEntry) error) error {
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

func (w *Walk) pass(folder *openedFolder, visit func(TreeEntry) error) error {
	index := folder.next
	folder.next++
	entry, err := w.entry(folder, string(folder.names.at(index)))
	if err != nil {
		if _, isOfNode := NodeError(err); isOfNode || IsUnreadable(err) {
			return err
		}
		w.Dropped++
		return nil
	}
	if entry.Kind == "" {
		w.Dropped++
		return nil
	}
	if entry.Kind == KindFolder {
		folder.passed = append(folder.passed, index)
	}
	return visit(entry)
}

func (w *Walk) list(file *os.File, prefix string) error {
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
func (w *Walk) counts(path string) (bool, error) {
	isText := utf8.ValidString(path)
	if isText && w.exclude[path] {
		return false, nil
	}
	if !isText {
		w.Dropped++
	}
	w.seen++
	if w.seen > w.bounds.WorkspaceFiles {
		return false, tooLarge("%d entries", w.bounds.WorkspaceFiles)
	}
	if len(path) > maxPathBytes {
		return false, tooLarge("%d bytes in one path", maxPathBytes)
	}
	return isText, w.countName(len(path))
}

func (w *Walk) countName(size int) error {
	w.names += int64(size)
	if w.names > maxNamesBytes {
		return tooLarge("%d bytes of names", maxNamesBytes)
	}
	return w.measure(int64(size))
}

func (w *Walk) measure(size int64) error {
	// A sparse file may have the largest size there is: the sum would overflow.
	if size > w.bounds.WorkspaceBytes-w.size {
		return tooLarge("%d bytes", w.bounds.WorkspaceBytes)
	}
	w.size += size
	return nil
}

func tooLarge(form string, bound int64) error {
	return Unreadable(ProblemTooLarge, "the workspace has more than "+form, bound)
}

func (w *Walk) descend(parent *openedFolder, name string) error {
	if len(w.open) >= maxFolders {
		return tooLarge("%d folders inside each other", maxFolders)
	}
	file, err := OpenBeneath(parent.file, name, FolderFlags)
	if _, isOfNode := NodeError(err); isOfNode {
		return err
	}
	if err != nil {
		return nil // it was a folder a moment ago and cannot be looked into any more
	}
	return w.list(file, parent.prefix+name+"/")
}

// entry returns an entry as it is kept, without a kind where it is not.
func (w *Walk) entry(folder *openedFolder, name string) (TreeEntry, error) {
	entry := TreeEntry{Path: folder.prefix + name, Parent: folder.file, Name: name}
	status, err := StatAt(folder.file, name)
	if err != nil {
		return entry, err
	}
	switch KindOf(status) {
	case unix.S_IFDIR:
		child, err := OpenBeneath(folder.file, name, FolderFlags)
		if err != nil {
			return entry, err
		}
		entry.Kind = KindFolder
		return entry, child.Close()
	case unix.S_IFREG:
		entry.Kind, entry.Size = kindFile, status.Size
		if status.Mode&anyExecute != 0 {
			entry.Kind = KindProgram
		}
		return entry, w.measure(status.Size)
	case unix.S_IFLNK:
		return w.link(entry)
	default:
		return entry, nil
	}
}

func (w *Walk) link(entry TreeEntry) (TreeEntry, error) {
	target, err := ReadLinkAt(entry.Parent, entry.Name)
	if err != nil {
		return entry, err
	}
	if err := w.countName(len(target)); err != nil {
		return entry, err
	}
	if utf8.ValidString(target) && StaysInside(entry.Path, target) {
		entry.Kind, entry.Target = KindLink, target
	}
	return entry, nil
}
