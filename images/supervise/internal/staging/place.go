// Package staging puts a candidate and copies of folders where commands find them.
package staging

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

// place is a folder that is being filled. Whatever stands in the way of an entry is removed and
// never followed; protected paths stay untouched, and so do their parents but for new entries.
type place struct {
	root      *os.File
	path      string
	protected []string
	inRoot    *rootRules // of the root file system; nil for a workspace
	at        string     // the folder that was used last, kept open
	folder    *os.File
	folders   []madeFolder
	links     []string // that were made
	buffer    []byte
}

// entryState is what an entry has beside its content.
type entryState struct {
	mode     uint32
	modified unix.Timespec
	owner    *owner // nil for whoever runs this
}

func (s entryState) times() []unix.Timespec { return []unix.Timespec{s.modified, s.modified} }

// madeFolder gets its state when nothing is put into it any more.
type madeFolder struct {
	path string
	entryState
}

func openPlace(name string, protected []string) (*place, error) {
	root, err := untrusted.OpenFolder(name)
	if err != nil {
		return nil, err
	}
	return &place{root: root, path: name, protected: protected, folder: root}, nil
}

// close applies modes and times of the folders, the deepest first, and releases the descriptors.
func (p *place) close() error {
	defer p.root.Close()
	var result error
	for index := len(p.folders) - 1; index >= 0 && result == nil; index-- {
		wanted := p.folders[index]
		var folder *os.File
		if folder, result = p.enter(wanted.path); result != nil {
			continue
		}
		if p.inRoot == nil {
			result = setState(folder, wanted.entryState)
		} else {
			result = p.inRoot.setState(folder, wanted)
		}
	}
	if p.inRoot != nil && result == nil {
		result = p.inRoot.closeAgain(p)
	}
	p.leave()
	return result
}

// setState leaves a folder alone that belongs to somebody else: without capabilities its mode cannot be
// changed, and it was made for everybody (the folders above read-only assets).
func setState(folder *os.File, state entryState) error {
	var status unix.Stat_t
	if err := unix.Fstat(int(folder.Fd()), &status); err != nil {
		return err
	}
	if int(status.Uid) != os.Geteuid() {
		return nil
	}
	// The times first: a closed folder cannot be searched.
	if err := unix.UtimesNanoAt(int(folder.Fd()), ".", state.times(), 0); err != nil {
		return &os.PathError{Op: "utimensat", Path: folder.Name(), Err: err}
	}
	return unix.Fchmod(int(folder.Fd()), state.mode)
}

func (p *place) leave() {
	if p.folder != p.root {
		_ = p.folder.Close()
	}
	p.folder, p.at = p.root, ""
}

// isProtected reports whether an entry must not be made: at or below a protected path, or, when
// it is no folder, in place of a parent of one.
func (p *place) isProtected(name string, isFolder bool) bool {
	target := path.Join(p.path, name)
	for _, guarded := range p.protected {
		if untrusted.IsBelow(target, guarded) || (!isFolder && untrusted.IsBelow(guarded, target)) {
			return true
		}
	}
	return p.inRoot != nil && p.inRoot.keeps(target, isFolder)
}

// isRefused is isProtected for an entry that is about to be made; it names one that a tool keeps from being made.
func (p *place) isRefused(name string, isFolder bool) bool {
	if p.inRoot != nil && p.inRoot.keeps(path.Join(p.path, name), isFolder) {
		p.inRoot.losses.Drop("/"+name, lostTool)
		return true
	}
	return p.isProtected(name, isFolder)
}

// hasProtected reports whether a protected path lies below the entry.
func (p *place) hasProtected(name string) bool {
	target := path.Join(p.path, name)
	for _, guarded := range p.protected {
		if untrusted.IsBelow(guarded, target) {
			return true
		}
	}
	return false
}

// enter opens a folder below the root, one component at a time, making what is missing.
func (p *place) enter(name string) (*os.File, error) {
	if name == "." || name == "" {
		p.leave()
		return p.root, nil
	}
	if name == p.at {
		return p.folder, nil
	}
	rest := name
	if p.at != "" && strings.HasPrefix(name, p.at+"/") {
		rest = name[len(p.at)+1:]
	} else {
		p.leave()
	}
	for _, component := range strings.Split(rest, "/") {
		next, before, err := enterOne(p.folder, component)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		at := path.Join(p.at, component)
		if before != nil && p.inRoot != nil {
			p.inRoot.opened[at] = *before
		}
		p.leave()
		p.folder, p.at = next, at
	}
	return p.folder, nil
}

// enterOne opens a folder, and returns the status that one had which was opened to its owner.
func enterOne(parent *os.File, name string) (*os.File, *unix.Stat_t, error) {
	status, err := untrusted.StatAt(parent, name)
	if err == nil && untrusted.KindOf(status) != unix.S_IFDIR {
		if err := untrusted.RemoveAt(parent, name, 0); err != nil {
			return nil, nil, err
		}
	}
	if err != nil || untrusted.KindOf(status) != unix.S_IFDIR {
		if err := unix.Mkdirat(int(parent.Fd()), name, 0o755); err != nil {
			return nil, nil, &os.PathError{Op: "mkdir", Path: name, Err: err}
		}
		folder, err := untrusted.OpenFolderAt(parent, name)
		return folder, nil, err
	}
	var before *unix.Stat_t
	// A read-only folder of an image; a failure shows when something is made in it.
	if status.Mode&untrusted.OwnerAll != untrusted.OwnerAll &&
		untrusted.ChangeMode(parent, name, status.Mode|untrusted.OwnerAll) == nil {
		before = &status
	}
	folder, err := untrusted.OpenFolderAt(parent, name)
	return folder, before, err
}

// clear opens the folder of an entry and removes what has its name.
func (p *place) clear(name string) (*os.File, string, error) {
	parent, err := p.enter(path.Dir(name))
	if err != nil {
		return nil, "", err
	}
	base := path.Base(name)
	err = untrusted.RemoveAt(parent, base, 0)
	if !isOfRights(err) {
		return parent, base, err
	}
	if status, missing := untrusted.StatAt(parent, base); missing == nil && untrusted.KindOf(status) == unix.S_IFDIR {
		// A folder would have been filled: that there is none is the candidate's fault, not want of rights.
		err = fmt.Errorf("%s is not the folder that it replaces: %v", name, err)
	}
	return parent, base, err
}

// putRoot keeps the state of the place itself. Its commands enter it, whatever its mode.
func (p *place) putRoot(state entryState) {
	state.mode |= untrusted.OwnerAll
	p.folders = append(p.folders, madeFolder{untrusted.RootPath, state})
}

// putFolder makes a folder; its state is applied when the place is closed.
func (p *place) putFolder(name string, state entryState) error {
	if p.isRefused(name, true) {
		return nil
	}
	folder, err := p.enter(name)
	if err != nil {
		return err
	}
	if p.inRoot != nil {
		if err := p.inRoot.begin(p, folder, name); err != nil {
			return err
		}
		delete(p.inRoot.opened, name)
	}
	if p.inRoot != nil || !p.hasProtected(name) {
		p.folders = append(p.folders, madeFolder{name, state})
	}
	return nil
}

// putFile makes a regular file, which fill writes.
func (p *place) putFile(name string, state entryState, fill func(*os.File) error) error {
	if p.isRefused(name, false) {
		return nil
	}
	parent, base, err := p.clear(name)
	if err != nil {
		return err
	}
	file, err := untrusted.OpenAt(parent, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(fill(file), unix.Fchmod(int(file.Fd()), state.mode), file.Close())
	if err == nil {
		err = unix.UtimesNanoAt(int(parent.Fd()), base, state.times(), unix.AT_SYMLINK_NOFOLLOW)
	}
	if err == nil && state.owner != nil {
		err = p.inRoot.setOwner(parent, base, name, *state.owner)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (p *place) copyTo(file *os.File, content io.Reader) error {
	if p.buffer == nil {
		p.buffer = make([]byte, 1<<20)
	}
	_, err := io.CopyBuffer(file, content, p.buffer)
	return err
}

// putHardLink gives a file that was put here another name.
func (p *place) putHardLink(name, first string) error {
	if p.isRefused(name, false) {
		return nil
	}
	if p.isProtected(first, false) || !specs.IsCleanRelative(first) {
		return fmt.Errorf("%s: %q is no file of the candidate", name, first)
	}
	source, err := openParent(p.root, first)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer source.Close()
	if status, err := untrusted.StatAt(source, path.Base(first)); err != nil || untrusted.KindOf(status) != unix.S_IFREG {
		return errors.Join(err, fmt.Errorf("%s: %q is no file of the candidate", name, first))
	}
	parent, base, err := p.clear(name)
	if err != nil {
		return err
	}
	if err := unix.Linkat(int(source.Fd()), path.Base(first), int(parent.Fd()), base, 0); err != nil {
		return &os.PathError{Op: "link", Path: name, Err: err}
	}
	return nil
}

// openParent opens the folder that holds an entry, without making or following anything.
func openParent(root *os.File, name string) (*os.File, error) {
	folder, err := untrusted.OpenFolderAt(root, ".")
	parts := strings.Split(name, "/")
	for _, part := range parts[:len(parts)-1] {
		if err != nil {
			return nil, err
		}
		parent := folder
		folder, err = untrusted.OpenFolderAt(parent, part)
		_ = parent.Close()
	}
	return folder, err
}

// putLink makes a symlink; nobody follows it here.
func (p *place) putLink(name, target string, state entryState) error {
	if p.isRefused(name, false) {
		return nil
	}
	parent, base, err := p.clear(name)
	if err != nil {
		return err
	}
	if err := unix.Symlinkat(target, int(parent.Fd()), base); err != nil {
		return &os.PathError{Op: "symlink", Path: name, Err: err}
	}
	p.links = append(p.links, name)
	err = unix.UtimesNanoAt(int(parent.Fd()), base, state.times(), unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && state.owner != nil {
		err = p.inRoot.setOwner(parent, base, name, *state.owner)
	}
	return err
}
