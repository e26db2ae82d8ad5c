package staging

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

// Why a change is not made, or not as it was.
const (
	lostTool  = "a tool of the check keeps what the image has"
	lostOwner = "without its owner"
)

// allModes are the bits of a mode.
const allModes = 0o7777

// rootPlace is where changes of a root file system are made; programs built for tests have them elsewhere.
var rootPlace = "/"

// kernelPlaces are never changed, whether something is mounted there or not.
var kernelPlaces = []string{"/proc", "/sys", "/dev"}

// owner is that of an entry.
type owner struct{ user, group int }

// rootRules are the further rules of a place that is a root file system.
type rootRules struct {
	kept   map[string]bool // paths of tools, which stay what they are in the image
	above  map[string]bool // folders on the way to them
	losses *outcome.Losses
	opened map[string]unix.Stat_t // folders of the image that were opened to their owner, with their status before

	replaces bool   // whether a folder that is above all others of the archive loses what it has in the image
	top      string // the last of these
}

// RightsError says that this process may not put an artifact where the task wants it: it must run as another user, or
// the artifact must have another place. Nothing that an agent leaves does that.
type RightsError struct {
	Path string
	err  error
}

func (e *RightsError) Error() string {
	return fmt.Sprintf("user %d of the verifier's container may not write %s (%v): let the verifier run as root, or name another place",
		os.Geteuid(), e.Path, e.err)
}

func (e *RightsError) Unwrap() error { return e.err }

func isOfRights(err error) bool { return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) }

func newRootRules(kept []string, losses *outcome.Losses) *rootRules {
	r := &rootRules{kept: map[string]bool{}, above: map[string]bool{}, losses: losses, opened: map[string]unix.Stat_t{}}
	for _, tool := range kept {
		r.kept[tool] = true
		for folder := path.Dir(tool); !r.above[folder]; folder = path.Dir(folder) {
			r.above[folder] = true
		}
	}
	return r
}

// keeps reports whether an entry must not be made for the sake of a tool.
func (r *rootRules) keeps(target string, isFolder bool) bool {
	if !isFolder && r.above[target] {
		return true
	}
	for at := target; at != "/"; at = path.Dir(at) {
		if r.kept[at] {
			return true
		}
	}
	return false
}

// closeAgain gives the folders of the image the modes that they had, the deepest first.
func (r *rootRules) closeAgain(p *place) error {
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(r.opened))) {
		mode := r.opened[name].Mode
		parent, err := openParent(p.root, name)
		if err != nil {
			continue // something else is in its place
		}
		status, err := untrusted.StatAt(parent, path.Base(name))
		if err == nil && untrusted.KindOf(status) == unix.S_IFDIR {
			err = untrusted.ChangeMode(parent, path.Base(name), mode)
		}
		_ = parent.Close()
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// setOwner gives an entry to its owner, where this process may do that.
func (r *rootRules) setOwner(parent *os.File, base, name string, wanted owner) error {
	status, err := untrusted.StatAt(parent, base)
	if err != nil || int(status.Uid) == wanted.user && int(status.Gid) == wanted.group {
		return err
	}
	err = unix.Fchownat(int(parent.Fd()), base, wanted.user, wanted.group, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) {
		r.losses.Name("/"+name, lostOwner)
		return nil
	}
	return err
}

// setState gives a folder its state. One of somebody else keeps its own, where this process may not change it.
func (r *rootRules) setState(folder *os.File, wanted madeFolder) error {
	err := unix.UtimesNanoAt(int(folder.Fd()), ".", wanted.times(), 0)
	var status unix.Stat_t
	if err == nil {
		err = unix.Fstat(int(folder.Fd()), &status)
	}
	// A mode that it has from its parent can be one that this process could not give.
	if err == nil && status.Mode&allModes != wanted.mode {
		err = unix.Fchmod(int(folder.Fd()), wanted.mode)
	}
	if err == nil {
		err = r.setOwner(folder, ".", wanted.path, *wanted.owner)
	}
	if isOfRights(err) {
		r.losses.Name("/"+wanted.path, lostOwner)
		return nil
	}
	return err
}

// ChangeRoot checks the digest of sealed changes of a root file system and makes them in this one, which is that of
// the same image. Nothing is changed on a mount, through a link or at an excluded place, and the tools that the spec
// names stay what they are in the image: if they did not, the changes would be no candidate (decision 0121).
func ChangeRoot(spec specs.RootChanges) (outcome.Losses, error) {
	var losses outcome.Losses
	mounts, err := untrusted.MountPoints()
	if err != nil {
		return losses, err
	}
	mounts = slices.DeleteFunc(slices.Concat(kernelPlaces, mounts), func(mount string) bool { return untrusted.IsBelow(rootPlace, mount) })
	tools, err := findTools(spec.Tools)
	if err != nil {
		return losses, err
	}
	archive, size, err := openSealed(spec.Path, spec.Digest)
	if err != nil {
		return losses, err
	}
	defer archive.Close()
	protected := slices.Concat(mounts, spec.Excluded)
	target, err := openPlace(rootPlace, protected)
	if err != nil {
		return losses, err
	}
	target.inRoot = newRootRules(tools.paths(), &losses)
	target.inRoot.replaces = spec.Replaces
	judge := &linkJudge{workspace: rootPlace, ours: slices.Concat([]string{frameworkRoot}, spec.Excluded)}
	for _, mount := range mounts {
		if !slices.Contains(harmless, mount) {
			judge.mounts = append(judge.mounts, mount)
		}
	}
	err = unpack(archive, size, target)
	if err == nil {
		err = target.judgeLinks(judge, &losses)
	}
	err = errors.Join(err, target.close())
	if err == nil {
		err = tools.check(&losses)
	}
	return losses, untrusted.OfCandidate(err)
}

// begin empties a folder that replaces the image's, but for what is protected, before anything is put into it.
func (r *rootRules) begin(p *place, folder *os.File, name string) error {
	if !r.replaces || r.top != "" && untrusted.IsBelow(name, r.top) {
		return nil
	}
	r.top = name
	return p.empty(folder, name, 0)
}

// remove removes what has a name, but for what is protected.
func (p *place) remove(name string) error {
	if p.isRefused(name, false) && p.isProtected(name, true) {
		return nil
	}
	parent, err := p.enter(path.Dir(name))
	if err != nil {
		return err
	}
	return p.removeAt(parent, name, 0)
}

// removeAt removes an entry with everything below it that is not protected, and follows nothing.
func (p *place) removeAt(parent *os.File, name string, depth int) error {
	base := path.Base(name)
	if !p.isProtected(name, false) {
		return untrusted.RemoveAt(parent, base, depth)
	}
	if p.isProtected(name, true) {
		return nil
	}
	if depth > untrusted.MaxDepth {
		return untrusted.ErrTooDeep
	}
	folder, err := untrusted.OpenFolderAt(parent, base)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	if err != nil {
		return err
	}
	defer folder.Close()
	return p.empty(folder, name, depth)
}

// empty removes what is in a folder and not protected.
func (p *place) empty(folder *os.File, name string, depth int) error {
	names, err := untrusted.ReadNames(folder, -1)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for _, child := range names {
		if err := p.removeAt(folder, path.Join(name, child), depth+1); err != nil {
			return err
		}
	}
	return nil
}
