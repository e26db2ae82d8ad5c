package staging

import (
	"errors"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

// Copy is the job of the init container that takes an image's folder into the workspace.
func Copy(text string, _ <-chan struct{}) outcome.Message {
	var spec specs.Copy
	if err := specs.Decode(text, &spec); err != nil {
		return outcome.Failure(outcome.CodeOwnFault, err)
	}
	if err := Transfer(specs.Transfer{Source: spec.Source, To: spec.To}, nil); err != nil {
		return outcome.Failure(outcome.CodeStaging, err)
	}
	return outcome.Message{V: 1, Code: outcome.CodeDone}
}

// Transfer copies the content of one folder into another.
func Transfer(spec specs.Transfer, protected []string) error {
	target, err := openPlace(spec.To, protected)
	if err != nil {
		return err
	}
	return errors.Join(copyInto(target, spec.Source), target.close())
}

// Modes that a copy keeps: no set-id bit ever crosses.
const (
	fileModes   = 0o777
	folderModes = 0o1777
)

// copyInto copies the content of a folder into a place: regular files, folders and symlinks,
// with modes and times, owned by whoever runs this. Other entries are left out.
func copyInto(target *place, from string) error {
	source, err := untrusted.OpenFolder(from)
	if err != nil {
		return err
	}
	defer source.Close()
	return copyFolder(target, source, "", 0)
}

func copyFolder(target *place, source *os.File, prefix string, depth int) error {
	if depth > untrusted.MaxDepth {
		return untrusted.ErrTooDeep
	}
	return untrusted.EachEntry(source, func(name string, status unix.Stat_t) error {
		return copyEntry(target, source, path.Join(prefix, name), status, depth)
	})
}

func copyEntry(target *place, source *os.File, place string, status unix.Stat_t, depth int) error {
	name, state := path.Base(place), entryState{mode: status.Mode & fileModes, modified: status.Mtim}
	switch untrusted.KindOf(status) {
	case unix.S_IFDIR:
		child, err := untrusted.OpenFolderAt(source, name)
		if err != nil {
			return err
		}
		defer child.Close()
		state.mode = status.Mode & folderModes
		if err := target.putFolder(place, state); err != nil {
			return err
		}
		return copyFolder(target, child, place, depth+1)
	case unix.S_IFREG:
		file, err := untrusted.OpenFileAt(source, name)
		if err != nil {
			return err
		}
		defer file.Close()
		return target.putFile(place, state, func(made *os.File) error { return target.copyTo(made, file) })
	case unix.S_IFLNK:
		link, err := untrusted.ReadLinkAt(source, name)
		if err != nil {
			return err
		}
		return target.putLink(place, link, state)
	default:
		return nil
	}
}
