package repository

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/process"
	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

// DiffStderrBytes of what git says on stderr stand in the message. One byte can take six there.
const DiffStderrBytes = 400

// States of the checkout before the command (contract 12.5).
const (
	BaselineClean     = "clean"
	BaselineCommitted = "committed"
)

// Worktree is a repository between the moment before the command and the one after it. What is
// compared are the files, by a git directory of our own: commits, index, refs and settings of the
// command do not matter. The objects lie within the command's reach, their names are in memory.
//
// A repository inside of another one, a submodule or not, is a Worktree of its own: git would take it
// for one commit. Its files are files of the patch. What it says of itself is read once, before the
// command; afterwards its .git is a name like others.
type Worktree struct {
	spec     specs.Diff
	git      *trustedGit
	root     string
	prefix   string // of its paths, seen from the outermost repository; empty, or it ends with a slash
	Commit   string
	tree     string
	entries  string
	baseline string
	inner    map[string]*Worktree // by folder, seen from root; nil for one that is not carried
	whole    *notCarried
}

// maxInner bounds the repositories inside of one; each costs a dozen runs of git.
const maxInner = 100

// notCarried is what the patch lacks.
type notCarried struct {
	count   int // of inner repositories
	names   []string
	unnamed int // files whose names are not UTF-8
}

func (n *notCarried) String() string {
	text := ""
	if n.unnamed > 0 {
		text = fmt.Sprintf("not part of the patch, %d files whose names are not UTF-8 text\n", n.unnamed)
	}
	if len(n.names) > 0 {
		text += "not part of the patch, repositories inside of the repository: " + strings.Join(n.names, ", ")
	}
	return text
}

// Record remembers the files as they are, those that the commit has and those that no rule
// ignores.
func Record(spec specs.Diff, stop <-chan struct{}) (*Worktree, error) {
	program, err := findGit(spec.Workdir)
	if err != nil {
		return nil, err
	}
	kept := [2]*process.Capture{{}, {}}
	placed := specs.Repository{Workdir: spec.Workdir, Scratch: spec.Scratch, TimeoutSeconds: spec.TimeoutSeconds}
	git, err := newTrustedGit(program, placed, kept, stop)
	if err != nil {
		return nil, err
	}
	git.outputBytes = specs.MaxPatchFile
	result := &Worktree{spec: spec, git: git, whole: &notCarried{}}
	return result, result.record()
}

func (w *Worktree) record() error {
	var err error
	if w.root, w.Commit, err = w.git.head(w.spec.Workdir); err != nil {
		return err
	}
	tracked, err := w.git.run(w.root, nil, "ls-tree", "-r", "-z", "--full-tree", w.Commit)
	if err != nil {
		return err
	}
	state, err := w.git.run(w.root, nil, "-c", "core.fsmonitor=false", "status", "--ignore-submodules=dirty", "--porcelain=v1", "-z")
	if err != nil {
		return err
	}
	w.baseline = BaselineClean
	if state != "" {
		w.baseline = BaselineCommitted
	}
	if err := w.git.adopt(w.root, commitFormat(w.Commit)); err != nil {
		return err
	}
	return w.begin(tracked)
}

// begin remembers what is there.
func (w *Worktree) begin(tracked string) error {
	// Without its objects: adding every file stores them in our own folder.
	files, modules := splitSubmodules(tracked)
	if err := w.fill(files); err != nil {
		return err
	}
	found, err := w.findInner(modules)
	if err != nil {
		return err
	}
	w.inner = map[string]*Worktree{}
	for _, folder := range found {
		// One that cannot be read is no reason to give up the others.
		inner, err := w.open(folder)
		if inner != nil && err == nil {
			err = inner.beginInner()
		}
		if err != nil {
			inner = nil
		}
		w.inner[folder] = inner
	}
	if w.tree, err = w.snapshot(found); err != nil {
		return err
	}
	w.entries, err = w.git.run(w.root, nil, "ls-files", "--stage", "-z")
	return err
}

// open prepares a repository inside of this one; nil for one beyond the bound.
func (w *Worktree) open(folder string) (*Worktree, error) {
	if w.whole.count++; w.whole.count > maxInner {
		return nil, nil
	}
	placed := specs.Repository{Scratch: w.spec.Scratch, TimeoutSeconds: w.spec.TimeoutSeconds}
	git, err := newTrustedGit(w.git.program, placed, w.git.kept, w.git.stop)
	if err != nil {
		return nil, err
	}
	git.outputBytes = w.git.outputBytes
	// Binary patches name contents by the hash of the outermost repository.
	git.objectFormat = w.git.objectFormat
	return &Worktree{
		spec: w.spec, git: git, root: filepath.Join(w.root, folder), prefix: w.prefix + folder + "/", whole: w.whole,
	}, nil
}

// beginInner is begin for an inner repository; from then on its git directory is one of our own.
func (w *Worktree) beginInner() error {
	tracked := w.trackedFiles()
	if err := w.git.adopt(w.root, w.git.objectFormat); err != nil {
		return err
	}
	return w.begin(tracked)
}

// trackedFiles are what the commit of an inner repository has. Whatever is wrong with it, or leads to
// another repository, leaves the rules that ignore files.
func (w *Worktree) trackedFiles() string {
	root, commit, err := w.git.head(w.root)
	tracked := ""
	if err == nil && root == w.root && commitFormat(commit) == w.git.objectFormat {
		if tracked, err = w.git.run(w.root, nil, "ls-tree", "-r", "-z", "--full-tree", commit); err != nil {
			tracked = ""
		}
	}
	return tracked
}

// fill makes the index anew from names of objects. It says nothing of times and sizes, so git reads
// every file: two versions of one length, written within a second, look the same to it otherwise.
func (w *Worktree) fill(entries string) error {
	_, err := w.git.run(w.root, []byte(entries), "update-index", "-z", "--index-info")
	return err
}

// splitSubmodules returns the entries of files, and the folders of submodules.
func splitSubmodules(entries string) (string, map[string]bool) {
	var kept strings.Builder
	modules := map[string]bool{}
	for _, entry := range strings.SplitAfter(entries, "\x00") {
		if strings.HasPrefix(entry, "160000 ") {
			_, name, _ := strings.Cut(strings.TrimSuffix(entry, "\x00"), "\t")
			modules[name] = true
		} else {
			kept.WriteString(entry)
		}
	}
	return kept.String(), modules
}

// findInner returns the folders in which other repositories begin, but those that git ignores. A
// folder that has files of this repository is no other one, whatever was put into it.
//
// Known ones are others even if they are ignored, and those of before even if they have lost their .git.
func (w *Worktree) findInner(known map[string]bool) ([]string, error) {
	folder, err := untrusted.OpenFolder(w.root)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	var found []string
	if err := w.search(folder, "", 0, known, &found); err != nil || len(found) == 0 {
		return nil, err
	}
	// It ends with 1 when nothing is ignored.
	ignored, err := w.git.run(w.root, []byte(strings.Join(found, "\x00")+"\x00"), "check-ignore", "--no-index", "-z", "--stdin")
	var ended *gitError
	if err != nil && !(errors.As(err, &ended) && ended.end.ExitCode == 1 && ended.end.Signal == 0) {
		return nil, err
	}
	leave := map[string]bool{}
	for _, name := range strings.Split(ignored, "\x00") {
		leave[name] = !known[name]
	}
	return slices.DeleteFunc(found, func(name string) bool { return leave[name] }), nil
}

func (w *Worktree) search(folder *os.File, prefix string, depth int, known map[string]bool, found *[]string) error {
	if depth > untrusted.MaxDepth {
		return nil
	}
	err := untrusted.EachEntry(folder, func(name string, status unix.Stat_t) error {
		if untrusted.KindOf(status) != unix.S_IFDIR || name == gitName {
			return nil
		}
		child, err := untrusted.OpenFolderAt(folder, name)
		if errors.Is(err, unix.EACCES) {
			return nil
		}
		if err != nil {
			return err
		}
		defer child.Close()
		place := path.Join(prefix, name)
		_, err = untrusted.StatAt(child, gitName)
		isOfBefore := known[place] && w.inner != nil
		if isOfBefore || err == nil && !strings.Contains(w.entries, "\t"+place+"/") {
			*found = append(*found, place)
			return nil
		}
		return w.search(child, place, depth+1, known, found)
	})
	if errors.Is(err, unix.EACCES) {
		// What this user cannot enter, git cannot read either.
		return nil
	}
	return err
}

const gitName = ".git"

func (w *Worktree) snapshot(inner []string) (string, error) {
	words := []string{"add", "-A", "--ignore-errors", "--", "."}
	for _, folder := range inner {
		words = append(words, ":(top,exclude,literal)"+folder)
	}
	if _, err := w.git.run(w.root, nil, words...); err != nil {
		return "", err
	}
	tree, err := w.git.run(w.root, nil, "write-tree", "--missing-ok")
	return strings.TrimSpace(tree), err
}

// diff returns what changed since record as a canonical patch. Every process of the command is
// dead by now.
func (w *Worktree) diff() ([]byte, error) {
	w.git.heard = process.Capture{HeadLimit: DiffStderrBytes}
	if err := w.git.restore(); err != nil {
		return nil, err
	}
	found, err := w.foundAgain()
	if err != nil {
		return nil, err
	}
	tree, err := w.snapshot(found)
	if err != nil {
		return nil, err
	}
	text, err := w.between(tree)
	if err != nil {
		return nil, err
	}
	inner, err := w.innerDiffs(found)
	return append(text, inner...), err
}

// foundAgain prepares a second snapshot and returns the repositories inside of this one.
func (w *Worktree) foundAgain() ([]string, error) {
	if w.prefix != "" && !isFolder(w.root) {
		// Nothing is left of it.
		w.root = filepath.Join(w.git.scratch, "nothing")
		if err := os.RemoveAll(w.root); err != nil {
			return nil, err
		}
		w.git.setWorktree(w.root)
		return nil, os.Mkdir(w.root, 0o700)
	}
	if err := w.fill(w.entries); err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for folder := range w.inner {
		known[folder] = true
	}
	return w.findInner(known)
}

// innerDiffs returns the changes of all repositories inside, those that are gone and new ones too.
func (w *Worktree) innerDiffs(found []string) ([]byte, error) {
	every := slices.Sorted(maps.Keys(w.inner))
	for _, folder := range found {
		if _, known := w.inner[folder]; known {
			continue
		}
		inner, err := w.open(folder)
		if err != nil {
			return nil, err
		}
		if inner != nil {
			if err := inner.beginEmpty(); err != nil {
				return nil, err
			}
		}
		w.inner[folder] = inner
		every = append(every, folder)
	}
	var text []byte
	for _, folder := range every {
		inner := w.inner[folder]
		if inner == nil {
			w.whole.names = append(w.whole.names, w.prefix+folder)
			continue
		}
		more, err := inner.diff()
		if err != nil {
			return nil, err
		}
		text = append(text, more...)
	}
	return text, nil
}

// beginEmpty is begin for a repository that was not there.
func (w *Worktree) beginEmpty() error {
	if err := w.git.adopt(w.root, w.git.objectFormat); err != nil {
		return err
	}
	tree, err := w.git.run(w.root, nil, "write-tree")
	w.tree, w.inner = strings.TrimSpace(tree), map[string]*Worktree{}
	return err
}

// between returns the changes from what was recorded to a tree.
func (w *Worktree) between(tree string) ([]byte, error) {
	for _, attributes := range []string{GitAttributes, GitAttributes + "* -diff\n"} {
		if err := w.git.setAttributes(attributes); err != nil {
			return nil, err
		}
		text, err := w.git.run(w.root, nil, "diff", "--binary", "--full-index", "--no-renames", "--no-ext-diff",
			"--no-textconv", "--no-color", "--src-prefix=a/"+w.prefix, "--dst-prefix=b/"+w.prefix, "--ignore-submodules=all", w.tree, tree)
		if err != nil {
			return nil, err
		}
		// Files in another encoding are binary for a patch, which is UTF-8 text.
		if utf8.ValidString(text) {
			text, lost := quoteNames([]byte(text))
			w.whole.unnamed += lost
			return text, nil
		}
	}
	return nil, errors.New("the diff is not UTF-8")
}

// isFolder tells whether a path is a folder without a symlink on its way.
func isFolder(name string) bool {
	resolved, err := filepath.EvalSymlinks(name)
	if err != nil || resolved != name {
		return false
	}
	status, err := os.Lstat(name)
	return err == nil && status.IsDir()
}

// Close removes what it takes to tell the changes.
func (w *Worktree) Close() error {
	err := w.git.close()
	for _, inner := range w.inner {
		if inner != nil {
			err = errors.Join(err, inner.Close())
		}
	}
	return err
}

// Write leaves the diff beside the streams and says how that went. An error says that something else
// than what the command left prevented the diff, or may have: then there is none.
func (w *Worktree) Write(streams *os.File) (*outcome.DiffReport, error) {
	text, err := w.diff()
	if err == nil && len(text) > w.spec.Bytes {
		// One byte more than the bound is enough for the courier to see it.
		text = text[:w.spec.Bytes+1]
	}
	if err == nil {
		err = untrusted.ReplaceFileAt(streams, outcome.DiffFile, text)
	}
	return &outcome.DiffReport{Baseline: w.baseline, Bytes: len(text), ExitCode: diffExitCode(err), Stderr: w.stderr(err)}, prevented(err)
}

// prevented returns the error of a diff that says nothing about what the command left.
func prevented(err error) error {
	var ended *gitError
	_, isOfNode := untrusted.NodeError(err)
	switch {
	case isOfNode:
		return err
	case !errors.As(err, &ended):
		return nil
	case ended.end.Stopped:
		return outcome.ErrStopped
	case ended.end.TimedOut, ended.isDisturbed():
		return outcome.CandidateFailure(err)
	default:
		return nil
	}
}

func diffExitCode(err error) *int {
	var failed *gitError
	switch {
	case err == nil:
		return new(int)
	case errors.As(err, &failed):
		return &failed.end.ExitCode
	default:
		return nil
	}
}

// stderr is what git said; where it said nothing, why there is no diff.
func (w *Worktree) stderr(err error) string {
	text := string(w.git.heard.Head)
	if text == "" && err != nil {
		text = err.Error()
	}
	if w.whole != nil {
		text = strings.TrimSpace(w.whole.String() + "\n" + text)
	}
	return cutText(strings.ToValidUTF8(text, "\uFFFD"), DiffStderrBytes)
}

var hunkHeader = regexp.MustCompile(`^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@`)

// quoteNames writes names with a blank in quotes, as our patches have them; git quotes all others
// that need it. Hunks are counted, so that no line of a file is taken for a header. A name that is not
// UTF-8 cannot stand in a patch: its section is left out and counted.
func quoteNames(text []byte) ([]byte, int) {
	var result bytes.Buffer
	oldLeft, newLeft, lost := 0, 0, 0
	isKept := true
	for _, raw := range bytes.SplitAfter(text, []byte("\n")) {
		line := string(raw)
		if oldLeft > 0 || newLeft > 0 {
			switch {
			case strings.HasPrefix(line, "-"):
				oldLeft--
			case strings.HasPrefix(line, "+"):
				newLeft--
			case !strings.HasPrefix(line, "\\"):
				oldLeft--
				newLeft--
			}
		} else if found := hunkHeader.FindStringSubmatch(line); found != nil {
			oldLeft, newLeft = hunkCount(found[1]), hunkCount(found[2])
		} else {
			if strings.HasPrefix(line, diffHeader) {
				if isKept = hasTextNames(line); !isKept {
					lost++
				}
			}
			line = quoteHeader(line)
		}
		if isKept {
			result.WriteString(line)
		}
	}
	return result.Bytes(), lost
}

const diffHeader = "diff --git "

// hasTextNames tells whether the names of a header are UTF-8. Nothing is renamed, so they are equal.
func hasTextNames(line string) bool {
	quoted, err := strconv.QuotedPrefix(strings.TrimPrefix(line, diffHeader))
	if err != nil {
		return true
	}
	name, err := strconv.Unquote(quoted)
	return err != nil || utf8.ValidString(name)
}

func hunkCount(text string) int {
	if text == "" {
		return 1
	}
	count, _ := strconv.Atoi(text)
	return count
}

func quoteHeader(line string) string {
	body := strings.TrimSuffix(line, "\n")
	switch {
	case strings.HasPrefix(body, diffHeader+"a/"):
		// Nothing is renamed, so both names are equal: "a/NAME b/NAME".
		names := body[len(diffHeader):]
		half := (len(names) - 1) / 2
		if strings.Contains(names[:half], " ") {
			return fmt.Sprintf("%s\"%s\" \"%s\"\n", diffHeader, names[:half], names[half+1:])
		}
	case strings.HasPrefix(body, "--- a/"), strings.HasPrefix(body, "+++ b/"):
		if name := strings.TrimSuffix(body[4:], "\t"); strings.Contains(name, " ") {
			return fmt.Sprintf("%s\"%s\"\n", body[:4], name)
		}
	}
	return line
}
