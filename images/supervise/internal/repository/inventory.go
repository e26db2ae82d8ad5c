package repository

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

// maxChanges bounds the list that the operator gets.
const maxChanges = 20_000

// changes are paths that are another entry than before; a value that is not nil is the text of the
// symlink that is there now.
type changes map[string]*string

func (c changes) paths() map[string]bool {
	result := map[string]bool{}
	for name := range c {
		result[name] = true
	}
	return result
}

func (c changes) equal(other changes) bool {
	return maps.EqualFunc(c, other, func(mine, theirs *string) bool {
		return mine == theirs || (mine != nil && theirs != nil && *mine == *theirs)
	})
}

// encode returns the list as JSON, cut when it is very long.
func (c changes) encode() ([]byte, error) {
	kept := changes{}
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if len(kept) == maxChanges {
			break
		}
		kept[name] = c[name]
	}
	return json.Marshal(kept)
}

// decodeDeclared reads what the operator found in the patch.
func decodeDeclared(content []byte) (changes, error) {
	var declared struct {
		Version int               `json:"version"`
		Changed []string          `json:"changed"`
		Links   map[string]string `json:"links"`
	}
	if err := specs.Decode(string(content), &declared); err != nil {
		return nil, err
	}
	result := changes{}
	for _, name := range declared.Changed {
		result[name] = nil
		if target, isLink := declared.Links[name]; isLink {
			result[name] = &target
		}
	}
	return result, nil
}

// entry is one file of a tree. Inode and time tell whether it was written: before the checks only
// git has run, which sets no times. The time of change would also tell of a lost hard link.
type entry struct {
	inode   uint64
	size    int64
	mode    uint32
	written unix.Timespec
	target  string // of a symlink
	digest  string // of a regular file, where it is asked for
}

// inventory is everything below a folder but folders. No attribute, ignore rule, index or git
// directory can hide a file from it.
type inventory map[string]entry

func takeInventory(root string, digests map[string]bool) (inventory, error) {
	folder, err := untrusted.OpenFolder(root)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	result := inventory{}
	return result, result.collect(folder, "", 0, digests)
}

func (i inventory) collect(folder *os.File, prefix string, depth int, digests map[string]bool) error {
	if depth > untrusted.MaxDepth {
		return untrusted.ErrTooDeep
	}
	return untrusted.EachEntry(folder, func(name string, status unix.Stat_t) error {
		place := path.Join(prefix, name)
		if untrusted.KindOf(status) != unix.S_IFDIR {
			found, err := describeEntry(folder, name, status, digests[place])
			i[place] = found
			return err
		}
		child, err := untrusted.OpenFolderAt(folder, name)
		if errors.Is(err, unix.EACCES) {
			// What this user cannot enter, git could not change.
			return nil
		}
		if err != nil {
			return err
		}
		defer child.Close()
		return i.collect(child, place, depth+1, digests)
	})
}

func describeEntry(folder *os.File, name string, status unix.Stat_t, withDigest bool) (entry, error) {
	found := entry{inode: status.Ino, size: status.Size, mode: status.Mode, written: status.Mtim}
	var err error
	switch {
	case untrusted.KindOf(status) == unix.S_IFLNK:
		found.target, err = untrusted.ReadLinkAt(folder, name)
	case untrusted.KindOf(status) == unix.S_IFREG && withDigest:
		var file *os.File
		if file, err = untrusted.OpenFileAt(folder, name); err == nil {
			found.digest, err = untrusted.ContentDigest(file)
			err = errors.Join(err, file.Close())
		}
	}
	return found, err
}

// compare returns what is another entry now.
func (i inventory) compare(after inventory) changes {
	result := changes{}
	for name := range i {
		if _, there := after[name]; !there {
			result[name] = nil
		}
	}
	for name, now := range after {
		before, there := i[name]
		if there && before.isSame(now) {
			continue
		}
		result[name] = nil
		if now.mode&unix.S_IFMT == unix.S_IFLNK {
			result[name] = &now.target
		}
	}
	return result
}

// isSame compares as git does: kind, owner's execute bit and content.
func (e entry) isSame(now entry) bool {
	if e == now {
		return true
	}
	const kept = unix.S_IFMT | unix.S_IXUSR
	if e.mode&kept != now.mode&kept {
		return false
	}
	if e.mode&unix.S_IFMT == unix.S_IFLNK {
		return e.target == now.target
	}
	return e.digest != "" && e.digest == now.digest
}
