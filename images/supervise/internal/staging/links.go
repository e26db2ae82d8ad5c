package staging

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/untrusted"
)

const (
	// frameworkFolder is the folder of a workspace that is ours; no link of a candidate may lead there.
	frameworkFolder = "securebench"
	// frameworkRoot holds all mounts of ours.
	frameworkRoot = "/opt/securebench"

	// maxFollowed links are followed by the kernel on the way to one file.
	maxFollowed = 40
	// maxSteps on the ways of all links of a candidate take a few seconds.
	maxSteps = 5_000_000
)

// Why a link is not kept.
const (
	lostFramework = "a link to a folder of the framework"
	lostOutside   = "a link to what is neither in the workspace nor in the image"
	lostTangled   = "a link among too many"
)

// harmless are files on mounts of the runtime to which links lead in honest workspaces.
var harmless = []string{
	"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf",
}

// temporaryPlaces are folders of an image where a check is most likely to put something of its own.
var temporaryPlaces = []string{"/tmp", "/var/tmp", "/run"}

// linkJudge follows links of a candidate as processes of this container will. A link may lead to what is in the
// workspace, except for our folder, and to what is in the image. Anything else, mounts of ours and of the
// runtime and what is not there yet, could become what the check holds (decision 0110).
type linkJudge struct {
	workspace string
	mounts    []string
	// ours are places of the framework, besides its root and its folder in the workspace. They are set for a candidate
	// that is the root file system, of which everything is in the workspace but them and mounts.
	ours  []string
	steps int
}

// judgeLinks removes links that must not be there. All of them are judged before the first goes.
func (p *place) judgeLinks(judge *linkJudge, losses *outcome.Losses) error {
	why := make([]string, len(p.links))
	for index, name := range p.links {
		why[index] = judge.judge(path.Join(judge.workspace, name))
	}
	for index, name := range p.links {
		if why[index] == "" {
			continue
		}
		losses.Drop(name, why[index])
		if _, _, err := p.clear(name); err != nil {
			return err
		}
	}
	return nil
}

func newLinkJudge(workspace string) (*linkJudge, error) {
	real, err := filepath.EvalSymlinks(workspace)
	if err != nil {
		return nil, err
	}
	mounts, err := untrusted.MountPoints()
	if err != nil {
		return nil, err
	}
	judge := &linkJudge{workspace: real}
	for _, mount := range mounts {
		// What the workspace lies on is like the image.
		if !untrusted.IsBelow(real, mount) && !slices.Contains(harmless, mount) {
			judge.mounts = append(judge.mounts, mount)
		}
	}
	return judge, nil
}

// judge returns why a link is not kept, or nothing.
func (j *linkJudge) judge(link string) string {
	at, pending, followed := "/", strings.Split(link, "/"), 0
	for len(pending) > 0 {
		if j.steps++; j.steps > maxSteps {
			return lostTangled
		}
		part := pending[0]
		pending = pending[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		if why := j.refusal(next, pending); why != "" {
			return why
		}
		var status unix.Stat_t
		if err := unix.Lstat(next, &status); err != nil {
			return j.missing(at)
		}
		switch untrusted.KindOf(status) {
		case unix.S_IFLNK:
			if followed++; followed > maxFollowed {
				return j.missing(at)
			}
			target, err := os.Readlink(next)
			if err != nil {
				return j.missing(at)
			}
			if path.IsAbs(target) {
				at = "/"
			}
			pending = append(strings.Split(target, "/"), pending...)
		case unix.S_IFDIR:
			at = next
		default:
			if len(pending) > 0 {
				return j.missing(at)
			}
			at = next
		}
	}
	return j.landed(at)
}

// refusal is why a link may not go on through a place, or end there.
func (j *linkJudge) refusal(place string, pending []string) string {
	if j.isOurs(place) {
		return lostFramework
	}
	if j.isInside(place) || !slices.Contains(j.mounts, place) || slices.Contains(harmless, path.Join(place, path.Join(pending...))) {
		return ""
	}
	return lostOutside
}

func (j *linkJudge) isOurs(place string) bool {
	if untrusted.IsBelow(place, frameworkRoot) {
		return true
	}
	if j.ours == nil {
		return untrusted.IsBelow(place, path.Join(j.workspace, frameworkFolder))
	}
	return slices.ContainsFunc(j.ours, func(each string) bool { return untrusted.IsBelow(place, each) })
}

func (j *linkJudge) isInside(place string) bool {
	return j.ours == nil && untrusted.IsBelow(place, j.workspace)
}

// missing judges a link that leads to nothing, below a folder that is there: in the workspace it is what the
// agent left, elsewhere the check may put something there.
func (j *linkJudge) missing(folder string) string {
	if j.isInside(folder) || j.ours != nil && !slices.ContainsFunc(temporaryPlaces, func(each string) bool {
		return untrusted.IsBelow(folder, each)
	}) {
		return ""
	}
	return lostOutside
}

// landed judges where a link leads. Paths go on from a folder: none outside the workspace may hold a mount.
func (j *linkJudge) landed(place string) string {
	if j.isInside(place) {
		return ""
	}
	if untrusted.IsBelow(frameworkRoot, place) || j.ours == nil && untrusted.IsBelow(j.workspace, place) ||
		slices.ContainsFunc(j.ours, func(each string) bool { return untrusted.IsBelow(each, place) }) {
		return lostFramework
	}
	for _, mount := range j.mounts {
		if untrusted.IsBelow(mount, place) && !slices.Contains(harmless, place) {
			return lostOutside
		}
	}
	return ""
}
