package repository

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

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
type Worktree struct {
	spec     specs.Diff
	git      *trustedGit
	root     string
	Commit   string
	tree     string
	entries  string
	baseline string
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
	result := &Worktree{spec: spec, git: git}
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
	state, err := w.git.run(w.root, nil, "-c", "core.fsmonitor=false", "status", "--porcelain=v1", "-z")
	if err != nil {
		return err
	}
	w.baseline = BaselineClean
	if state != "" {
		w.baseline = BaselineCommitted
	}
	if err := w.git.adopt(w.root, w.Commit); err != nil {
		return err
	}
	// Without its objects: adding every file stores them in our own folder.
	if err := w.fill(withoutSubmodules(tracked)); err != nil {
		return err
	}
	if w.tree, err = w.snapshot(); err != nil {
		return err
	}
	w.entries, err = w.git.run(w.root, nil, "ls-files", "--stage", "-z")
	return err
}

// fill makes the index anew from names of objects. It says nothing of times and sizes, so git reads
// every file: two versions of one length, written within a second, look the same to it otherwise.
func (w *Worktree) fill(entries string) error {
	_, err := w.git.run(w.root, []byte(entries), "update-index", "-z", "--index-info")
	return err
}

func withoutSubmodules(entries string) string {
	var kept strings.Builder
	for _, entry := range strings.SplitAfter(entries, "\x00") {
		if !strings.HasPrefix(entry, "160000 ") {
			kept.WriteString(entry)
		}
	}
	return kept.String()
}

func (w *Worktree) snapshot() (string, error) {
	if _, err := w.git.run(w.root, nil, "add", "-A", "--ignore-errors", "."); err != nil {
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
	if err := w.fill(w.entries); err != nil {
		return nil, err
	}
	tree, err := w.snapshot()
	if err != nil {
		return nil, err
	}
	for _, attributes := range []string{GitAttributes, GitAttributes + "* -diff\n"} {
		if err := w.git.setAttributes(attributes); err != nil {
			return nil, err
		}
		text, err := w.git.run(w.root, nil, "diff", "--binary", "--full-index", "--no-renames", "--no-ext-diff",
			"--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/", "--submodule=short", w.tree, tree)
		if err != nil {
			return nil, err
		}
		// Files in another encoding are binary for a patch, which is UTF-8 text.
		if utf8.ValidString(text) {
			return quoteNames([]byte(text)), nil
		}
	}
	return nil, errors.New("the diff is not UTF-8")
}

// Close removes what it takes to tell the changes.
func (w *Worktree) Close() error { return w.git.close() }

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
	return cutText(strings.ToValidUTF8(text, "\uFFFD"), DiffStderrBytes)
}

var hunkHeader = regexp.MustCompile(`^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@`)

// quoteNames writes names with a blank in quotes, as our patches have them; git quotes all others
// that need it. Hunks are counted, so that no line of a file is taken for a header.
func quoteNames(text []byte) []byte {
	var result bytes.Buffer
	oldLeft, newLeft := 0, 0
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
			line = quoteHeader(line)
		}
		result.WriteString(line)
	}
	return result.Bytes()
}

func hunkCount(text string) int {
	if text == "" {
		return 1
	}
	count, _ := strconv.Atoi(text)
	return count
}

func quoteHeader(line string) string {
	const header = "diff --git "
	body := strings.TrimSuffix(line, "\n")
	switch {
	case strings.HasPrefix(body, header+"a/"):
		// Nothing is renamed, so both names are equal: "a/NAME b/NAME".
		names := body[len(header):]
		half := (len(names) - 1) / 2
		if strings.Contains(names[:half], " ") {
			return fmt.Sprintf("%s\"%s\" \"%s\"\n", header, names[:half], names[half+1:])
		}
	case strings.HasPrefix(body, "--- a/"), strings.HasPrefix(body, "+++ b/"):
		if name := strings.TrimSuffix(body[4:], "\t"); strings.Contains(name, " ") {
			return fmt.Sprintf("%s\"%s\"\n", body[:4], name)
		}
	}
	return line
}
