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

	"securebench.dev/supervise/internal/untrusted"
)

// place is a folder that is being filled. Whatever stands in the way of an entry is removed and
// never followed; protected paths stay untouched, and so do their parents but for new entries.
type place struct {
	root      *os.File
	path      string
	protected []string
	at        string // the folder that was used last, kept open
	folder    *os.File
	modes     []folderMode
	buffer    []byte
}

type folderMode struct {
	path string
	mode uint32
}

func openPlace(name string, protected []string) (*place, error) {
	root, err := untrusted.OpenFolder(name)
	if err != nil {
		return nil, err
	}
	return &place{root: root, path: name, protected: protected, folder: root}, nil
}

// close applies the modes of the folders, the deepest first, and releases the descriptors.
func (p *place) close() error {
	defer p.root.Close()
	var result error
	for index := len(p.modes) - 1; index >= 0 && result == nil; index-- {
		wanted := p.modes[index]
		var folder *os.File
		if folder, result = p.enter(wanted.path); result == nil {
			result = setMode(folder, wanted.mode)
		}
	}
	p.leave()
	return result
}

// setMode leaves a folder alone that belongs to somebody else: without capabilities its mode cannot be
// changed, and it was made for everybody (the folders above read-only assets).
func setMode(folder *os.File, mode uint32) error {
	var status unix.Stat_t
	if err := unix.Fstat(int(folder.Fd()), &status); err != nil {
		return err
	}
	if int(status.Uid) != os.Geteuid() {
		return nil
	}
	return unix.Fchmod(int(folder.Fd()), mode)
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
	return false
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
		next, err := enterOne(p.folder, component)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		at := path.Join(p.at, component)
		p.leave()
		p.folder, p.at = next, at
	}
	return p.folder, nil
}

func enterOne(parent *os.File, name string) (*os.File, error) {
	status, err := untrusted.StatAt(parent, name)
	if err == nil && untrusted.KindOf(status) != unix.S_IFDIR {
		if err := untrusted.RemoveAt(parent, name, 0); err != nil {
			return nil, err
		}
	}
	if err != nil || untrusted.KindOf(status) != unix.S_IFDIR {
		if err := unix.Mkdirat(int(parent.Fd()), name, 0o755); err != nil {
			return nil, &os.PathError{Op: "mkdir", Path: name, Err: err}
		}
		return untrusted.OpenFolderAt(parent, name)
	}
	if status.Mode&untrusted.OwnerAll != untrusted.OwnerAll {
		// A read-only folder of an image; a failure shows when something is made in it.
		_ = untrusted.ChangeMode(parent, name, status.Mode|untrusted.OwnerAll)
	}
	return untrusted.OpenFolderAt(parent, name)
}

// clear opens the folder of an entry and removes what has its name.
func (p *place) clear(name string) (*os.File, string, error) {
	parent, err := p.enter(path.Dir(name))
	if err != nil {
		return nil, "", err
	}
	base := path.Base(name)
	return parent, base, untrusted.RemoveAt(parent, base, 0)
}

// putFolder makes a folder; its mode is applied when the place is closed.
func (p *place) putFolder(name string, mode uint32) error {
	if p.isProtected(name, true) {
		return nil
	}
	if _, err := p.enter(name); err != nil {
		return err
	}
	if !p.hasProtected(name) {
		p.modes = append(p.modes, folderMode{name, mode})
	}
	return nil
}

// putFile makes a regular file; times may be nil.
func (p *place) putFile(name string, mode uint32, content io.Reader, times []unix.Timespec) error {
	if p.isProtected(name, false) {
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
	if p.buffer == nil {
		p.buffer = make([]byte, 1<<20)
	}
	_, err = io.CopyBuffer(file, content, p.buffer)
	err = errors.Join(err, unix.Fchmod(int(file.Fd()), mode), file.Close())
	if err == nil && times != nil {
		err = unix.UtimesNanoAt(int(parent.Fd()), base, times, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// putLink makes a symlink; nobody follows it here.
func (p *place) putLink(name, target string) error {
	if p.isProtected(name, false) {
		return nil
	}
	parent, base, err := p.clear(name)
	if err != nil {
		return err
	}
	if err := unix.Symlinkat(target, int(parent.Fd()), base); err != nil {
		return &os.PathError{Op: "symlink", Path: name, Err: err}
	}
	return nil
}
