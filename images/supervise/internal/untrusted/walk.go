package untrusted

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/outcome"
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
	// maxExtents of a sparse file are listed in its entry; what comes after them is one extent.
	maxExtents = 1 << 14

	setID      = unix.S_ISUID | unix.S_ISGID
	blockBytes = 512 // of which the kernel counts a file's blocks
)

// TreeEntry is one entry that is kept. Its folder stays open until the next one is asked for.
type TreeEntry struct {
	Path     string
	Mode     uint32 // kind and mode as the kernel has them, without set-id bits
	Modified unix.Timespec
	Parent   *os.File
	Name     string
	Size     int64    // of a file
	Extents  []Extent // of a sparse file: the parts that hold data; nil for any other
	Target   string   // of a link
	Inode    Inode    // of a file with several names; the zero value for any other
}

// Extent is a part of a file.
type Extent struct{ Offset, Length int64 }

// Inode is what the names of a file have in common.
type Inode struct{ Device, Number uint64 }

// inodeOf is that of a file with several names, zero for any other.
func inodeOf(status unix.Stat_t) Inode {
	if status.Nlink < 2 {
		return Inode{}
	}
	return Inode{uint64(status.Dev), status.Ino}
}

// Walk is one reading of a tree in the byte order of its paths, within bounds and without following a link.
type Walk struct {
	bounds  specs.CandidateBounds
	exclude map[string]bool // passed over with all that is below, without being counted
	modes   Modes
	Losses  outcome.Losses // so far
	seen    int64
	names   int64
	size    int64
	linked  map[Inode]bool // files with several names, of which one was passed
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
func NewWalk(root *os.File, bounds specs.CandidateBounds, exclude map[string]bool, modes Modes) (*Walk, error) {
	w := &Walk{bounds: bounds, exclude: exclude, modes: modes, linked: map[Inode]bool{}}
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
	name := string(folder.names.at(index))
	entry, lost, err := w.entry(folder, name)
	if err != nil {
		if _, isOfNode := NodeError(err); isOfNode || IsUnreadable(err) {
			return err
		}
		lost = LostUnreadable
	}
	if lost != "" {
		w.Losses.Drop(folder.prefix+name, lost)
		return nil
	}
	if entry.Mode&unix.S_IFMT == unix.S_IFDIR {
		folder.passed = append(folder.passed, index)
	}
	return visit(entry)
}

// Why an entry is not kept.
const (
	LostUnreadable = "cannot be read"
	lostNoText     = "its name is not UTF-8"
	lostNoTarget   = "its target is not UTF-8"
	lostLongPath   = "its path is too long"
	lostDeep       = "too many folders inside each other"
	lostSetID      = "without its set-id bits"
)

func (w *Walk) list(file *os.File, prefix string) error {
	folder := &openedFolder{file: file, prefix: prefix, names: &nameList{}}
	w.open = append(w.open, folder)
	err := eachName(file, func(name string) error {
		isKept, err := w.counts(prefix + name)
		if isKept {
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
	w.seen++
	if w.seen > w.bounds.WorkspaceFiles {
		return false, tooLarge("%d entries", w.bounds.WorkspaceFiles)
	}
	isShort := len(path) <= maxPathBytes
	switch {
	case !isText:
		w.Losses.Drop(path, lostNoText)
	case !isShort:
		w.Losses.Drop(path, lostLongPath)
	}
	return isText && isShort, w.countName(len(path))
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
	file, err := OpenBeneath(parent.file, name, FolderFlags)
	if _, isOfNode := NodeError(err); isOfNode {
		return err
	}
	if err != nil {
		return nil // it was a folder a moment ago and cannot be looked into any more
	}
	if len(w.open) >= maxFolders {
		defer file.Close()
		if names, _ := ReadNames(file, 1); len(names) > 0 {
			w.Losses.Drop(parent.prefix+name+"/", lostDeep)
		}
		return nil
	}
	return w.list(file, parent.prefix+name+"/")
}

// Root is the entry of the tree's own folder.
func (w *Walk) Root() (TreeEntry, error) {
	var status unix.Stat_t
	root := w.open[0].file
	err := unix.Fstat(int(root.Fd()), &status)
	return w.kept(TreeEntry{Path: RootPath, Parent: root, Name: RootPath}, status), err
}

// entry returns an entry as it is kept, or why it is lost.
func (w *Walk) entry(folder *openedFolder, name string) (TreeEntry, string, error) {
	entry := TreeEntry{Path: folder.prefix + name, Parent: folder.file, Name: name}
	status, err := StatAt(folder.file, name)
	if err != nil {
		return entry, "", err
	}
	switch kind := KindOf(status); kind {
	case unix.S_IFDIR:
		child, err := OpenBeneath(folder.file, name, FolderFlags)
		if err != nil {
			return entry, "", err
		}
		return w.kept(entry, status), "", child.Close()
	case unix.S_IFREG:
		entry, err = w.file(w.kept(entry, status), status)
		return entry, "", err
	case unix.S_IFLNK:
		return w.link(w.kept(entry, status))
	default:
		return entry, kindName(kind), nil
	}
}

// kept fills in what all kinds of entries have.
func (w *Walk) kept(entry TreeEntry, status unix.Stat_t) TreeEntry {
	mode := status.Mode & allModes
	if KindOf(status) != unix.S_IFLNK {
		mode = w.modes.of(entry.Path, status)
	}
	if mode&setID != 0 {
		w.Losses.Name(entry.Path, lostSetID)
	}
	entry.Mode, entry.Modified = KindOf(status)|mode&KeptModes, status.Mtim
	return entry
}

// file measures a file by what it holds; a file with several names counts once.
func (w *Walk) file(entry TreeEntry, status unix.Stat_t) (TreeEntry, error) {
	entry.Size = status.Size
	if entry.Inode = inodeOf(status); entry.Inode != (Inode{}) {
		if w.linked[entry.Inode] {
			return entry, nil
		}
		w.linked[entry.Inode] = true
	}
	if IsSparse(status) {
		file, err := OpenRegularAt(entry.Parent, entry.Name, "a file")
		if err != nil {
			return entry, nil // its reader finds out
		}
		defer file.Close()
		if entry.Extents, err = Extents(file, status.Size); err != nil {
			return entry, err
		}
	}
	return entry, w.measure(Stored(entry.Size, entry.Extents))
}

// Stored is how much of a file of a size is carried, of a sparse one its parts.
func Stored(size int64, parts []Extent) int64 {
	if parts == nil {
		return size
	}
	var total int64
	for _, each := range parts {
		total += each.Length
	}
	return total
}

// ExtentsRecord is the record of a sparse file's entry in an archive: the file's size and where the parts
// lie whose content follows, as decimal numbers with commas.
const ExtentsRecord = "SECUREBENCH.extents"

// ExtentText is the value of an ExtentsRecord.
func ExtentText(size int64, parts []Extent) string {
	text := strconv.AppendInt(nil, size, 10)
	for _, part := range parts {
		text = strconv.AppendInt(append(text, ','), part.Offset, 10)
		text = strconv.AppendInt(append(text, ','), part.Length, 10)
	}
	return string(text)
}

// ParseExtents returns the size of a file and its parts, in their order inside of the file and of so many
// bytes together.
func ParseExtents(text string, stored int64) (int64, []Extent, error) {
	var numbers []int64
	for _, word := range strings.Split(text, ",") {
		number, err := strconv.ParseInt(word, 10, 64)
		if err != nil || number < 0 {
			return 0, nil, fmt.Errorf("extents: %q is no size", word)
		}
		numbers = append(numbers, number)
	}
	size, end := numbers[0], int64(0)
	parts := make([]Extent, 0, len(numbers)/2)
	for numbers = numbers[1:]; len(numbers) > 1; numbers = numbers[2:] {
		part := Extent{numbers[0], numbers[1]}
		if part.Offset < end || part.Offset > size || part.Length > size-part.Offset {
			return 0, nil, errors.New("extents: a part is not in its place")
		}
		end = part.Offset + part.Length
		stored -= part.Length
		parts = append(parts, part)
	}
	if len(numbers) > 0 || stored != 0 {
		return 0, nil, errors.New("extents: they are not those of the content")
	}
	return size, parts, nil
}

// IsSparse reports whether a file has holes.
func IsSparse(status unix.Stat_t) bool { return status.Blocks < status.Size/blockBytes }

// Extents returns the parts of a file that hold data, nil where its file system does not know them.
func Extents(file *os.File, size int64) ([]Extent, error) {
	found := []Extent{}
	for at := int64(0); at < size; {
		begin, err := unix.Seek(int(file.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		end := size
		if err == nil && len(found) < maxExtents-1 {
			end, err = unix.Seek(int(file.Fd()), begin, unix.SEEK_HOLE)
		}
		if _, isOfNode := NodeError(err); isOfNode {
			return nil, err
		}
		if err != nil || end <= begin || end > size {
			return nil, nil
		}
		found = append(found, Extent{begin, end - begin})
		at = end
	}
	return found, nil
}

func (w *Walk) link(entry TreeEntry) (TreeEntry, string, error) {
	target, err := ReadLinkAt(entry.Parent, entry.Name)
	if err != nil {
		return entry, "", err
	}
	if err := w.countName(len(target)); err != nil {
		return entry, "", err
	}
	if !utf8.ValidString(target) {
		return entry, lostNoTarget, nil
	}
	entry.Target = target
	return entry, "", nil
}
