package rootfs

import (
	"errors"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/bundle"
	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

// artifact is a path of which everything is kept but what its patterns leave out.
type artifact struct {
	path     string // seen from the root, without a slash
	patterns []*regexp.Regexp
}

// holds reports whether an entry belongs to the artifact.
func (a artifact) holds(name string) bool {
	member := name
	if a.path != "" {
		var isBelow bool
		if member, isBelow = strings.CutPrefix(name, a.path+"/"); !isBelow {
			return name == a.path
		}
	}
	for at := member; at != "."; at = path.Dir(at) {
		if a.leavesOut(at) {
			return false
		}
	}
	return true
}

// leavesOut reports whether a pattern is that of a member of the folder, from its beginning or from behind a slash, or
// that of the folder as tar names it.
func (a artifact) leavesOut(member string) bool {
	for rest, more := "./"+member, true; more; _, rest, more = strings.Cut(rest, "/") {
		for _, pattern := range a.patterns {
			if pattern.MatchString(rest) || pattern.MatchString(".") {
				return true
			}
		}
	}
	return false
}

// Artifacts are paths of a file system that are kept as they are in the end, changed or not.
type Artifacts struct {
	root     string
	excluded []string
	stop     <-chan struct{}
	all      []artifact // in the order of a walk
}

// NewArtifacts returns the artifacts of a specification; a relative one lies below the working folder.
func NewArtifacts(root, workdir string, spec specs.Root, stop <-chan struct{}) *Artifacts {
	a := &Artifacts{root, slices.Concat(kernelPlaces, spec.Excluded), stop, nil}
	for _, each := range spec.Artifacts {
		name := each.Source
		if !path.IsAbs(name) {
			name = path.Join(workdir, name)
		}
		made := artifact{path: strings.TrimPrefix(path.Clean(name), "/")}
		for _, pattern := range each.Exclude {
			made.patterns = append(made.patterns, wildcards(pattern))
		}
		a.all = append(a.all, made)
	}
	slices.SortFunc(a.all, func(one, two artifact) int {
		return slices.Compare(strings.Split(one.path, "/"), strings.Split(two.path, "/"))
	})
	return a
}

// wildcards is a pattern of file names as tar reads it: its wildcards match slashes.
func wildcards(pattern string) *regexp.Regexp {
	var text strings.Builder
	for rest := pattern; rest != ""; {
		_, size := utf8.DecodeRuneInString(rest)
		switch end := classEnd(rest); {
		case rest[0] == '*':
			text.WriteString("(?s:.*)")
		case rest[0] == '?':
			text.WriteString("(?s:.)")
		case end > 0:
			class := strings.ReplaceAll(rest[1:end], `\`, `\\`)
			if class[0] == '!' {
				class = "^" + class[1:]
			}
			text.WriteString("[" + class + "]")
			size = end + 1
		case rest[0] == '\\' && len(rest) > 1:
			_, size = utf8.DecodeRuneInString(rest[1:])
			size++
			text.WriteString(regexp.QuoteMeta(rest[1:size]))
		default:
			text.WriteString(regexp.QuoteMeta(rest[:size]))
		}
		rest = rest[size:]
	}
	made, err := regexp.Compile("^(?:" + text.String() + ")$")
	if err != nil {
		return regexp.MustCompile("^" + regexp.QuoteMeta(pattern) + "$")
	}
	return made
}

// classEnd is where the class ends with which a pattern begins, or 0.
func classEnd(pattern string) int {
	if pattern[0] != '[' || len(pattern) < 3 {
		return 0
	}
	if end := strings.IndexByte(pattern[2:], ']'); end >= 0 {
		return end + 2
	}
	return 0
}

// holds reports whether an entry belongs to an artifact, or is a folder above one.
func (a *Artifacts) holds(name string) bool {
	return slices.ContainsFunc(a.all, func(each artifact) bool {
		return each.holds(name) || untrusted.IsBelow(each.path, name)
	})
}

// Write writes the artifacts as an archive into a folder that no command can reach any more, or a note in its place.
func (a *Artifacts) Write(folder *os.File, bounds Bounds) error {
	return write(folder, func(archive *bundle.Writer) error {
		root, err := untrusted.OpenFolder(a.root)
		if err != nil {
			return err
		}
		defer root.Close()
		places := map[string]bool{}
		for _, place := range a.excluded {
			places[place[1:]] = true
		}
		nothing := &Snapshot{root: a.root, stop: a.stop}
		reading := &changes{nothing, archive, places, bounds, 0, map[untrusted.Inode]string{}, a.holds}
		last := "."
		for _, each := range a.all {
			if last == "" || last != "." && untrusted.IsBelow(each.path, last) {
				continue // it was read with the one above it
			}
			last = each.path
			if err := a.one(reading, root, each.path); err != nil {
				return err
			}
		}
		return nil
	})
}

// one writes an artifact with all that is below it. Nothing is read through a link.
func (a *Artifacts) one(reading *changes, root *os.File, name string) error {
	if name == "" {
		return reading.folder(root, "", 0, false)
	}
	for at := name; at != "."; at = path.Dir(at) {
		if reading.places[at] {
			return reading.add(bundle.Entry{Name: name, Kind: bundle.Missing})
		}
	}
	parent, err := enter(root, path.Dir(name))
	if err == nil {
		defer parent.Close()
		err = a.read(reading, parent, name)
	}
	for _, why := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EACCES} {
		if errors.Is(err, why) {
			return reading.add(bundle.Entry{Name: name, Kind: bundle.Missing})
		}
	}
	return err
}

// enter opens a folder below the root, one component at a time; mounts are entered, links are not.
func enter(root *os.File, name string) (*os.File, error) {
	at, err := untrusted.OpenBeneath(root, ".", untrusted.FolderFlags)
	for _, component := range strings.Split(name, "/") {
		if err != nil || component == "." {
			return at, err
		}
		var next *os.File
		next, err = untrusted.OpenBeneath(at, component, untrusted.FolderFlags)
		_ = at.Close()
		at = next
	}
	return at, err
}

func (a *Artifacts) read(reading *changes, parent *os.File, name string) error {
	base := path.Base(name)
	status, err := untrusted.StatAt(parent, base)
	if err != nil {
		return err
	}
	if untrusted.KindOf(status) != unix.S_IFDIR {
		return reading.changed(parent, name, base, status)
	}
	// The artifact may be a mount itself; further mounts below it are not read.
	folder, err := untrusted.OpenBeneath(parent, base, untrusted.FolderFlags)
	if err != nil {
		return err
	}
	defer folder.Close()
	header := entryOf(name+"/", status)
	header.Kind = bundle.Folder
	header.Mode |= everybody
	if err := reading.add(header); err != nil {
		return err
	}
	return reading.folder(folder, name+"/", 1, false)
}

// everybody may write into the folder of an artifact.
const everybody = 0o777
