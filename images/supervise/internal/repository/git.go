package repository

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/process"
	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

const (
	// gitOutputBytes is what is kept of git's own words, beginning and end each.
	gitOutputBytes = 256 << 10
	// gitErrorBytes of them stand in the message.
	gitErrorBytes = 600
)

// gitPlaces is where git is looked for before the image's PATH, which may name a folder of the
// repository.
var gitPlaces = []string{"/usr/bin/git", "/usr/local/bin/git", "/bin/git", "/opt/conda/bin/git"}

// gitSettings replace the user's configuration. safe.directory is needed because the repository
// may belong to another user than the container's.
const gitSettings = `[safe]
	directory = *
[core]
	hooksPath = /dev/null
	attributesFile = /dev/null
	excludesFile = /dev/null
	fsmonitor = false
	untrackedCache = false
	autocrlf = false
	symlinks = true
	fileMode = true
`

// GitAttributes take every attribute away by which a file of the repository could have a program
// run or its bytes changed; info/attributes overrides every .gitattributes.
const GitAttributes = "* -text -filter -ident -working-tree-encoding -export-subst -merge\n"

// nodeWords are what the C libraries (glibc, musl) call the errors of a node that lacks something or
// whose disk fails, as untrusted.NodeError has them. git says them and ends as for a wrong patch.
var nodeWords = regexp.MustCompile(`(?i)no space left on device|(disk )?quota exceeded|(input/output|i/o) error|read-only file system|` +
	`stale file handle|cannot allocate memory|out of memory|too many open files|no file descriptors available`)

// gitError is a git command that ended with an error.
type gitError struct {
	end  process.Ending
	text string
	// lacks: it said that the node lacks something. Names of files stand in what it says, so a
	// candidate can have it say so.
	lacks bool
}

func (e *gitError) Error() string { return e.text }

// isDisturbed reports whether git may have ended for another reason than what it was given.
func (e *gitError) isDisturbed() bool { return e.end.Signal != 0 || e.lacks }

// trustedGit runs git with a git directory and settings of our own. Nothing in the repository,
// not even its own .git, says how it works, except for the first question: which commit it has.
type trustedGit struct {
	program      string
	scratch      string
	environment  []string
	objectFormat string
	limit        float64
	outputBytes  int
	kept         [2]*process.Capture
	heard        process.Capture // stderr of several runs
	stop         <-chan struct{}
}

func newTrustedGit(program string, spec specs.Repository, kept [2]*process.Capture, stop <-chan struct{}) (*trustedGit, error) {
	scratch, err := os.MkdirTemp(spec.Scratch, "git-")
	if err != nil {
		return nil, err
	}
	settings := filepath.Join(scratch, "config")
	git := &trustedGit{
		program: program, scratch: scratch, limit: spec.TimeoutSeconds, kept: kept, stop: stop, outputBytes: gitOutputBytes,
		environment: []string{
			"PATH=" + process.SearchPath, "LC_ALL=C", "HOME=" + scratch, "XDG_CONFIG_HOME=" + scratch,
			"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CONFIG_GLOBAL=" + settings,
			"GIT_ATTR_NOSYSTEM=1", "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_PAGER=cat",
			// A partial clone would fetch what it lacks by a program of its settings.
			"GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none",
		},
	}
	return git, git.writeSettings()
}

// writeSettings writes both places: an old git knows no GIT_CONFIG_GLOBAL and reads ~/.gitconfig.
func (g *trustedGit) writeSettings() error {
	var result error
	for _, name := range []string{"config", ".gitconfig"} {
		place := filepath.Join(g.scratch, name)
		// What a command may have put there is removed, not written through.
		result = errors.Join(result, os.RemoveAll(place), os.WriteFile(place, []byte(gitSettings), 0o600))
	}
	return result
}

// findGit returns the absolute path of the image's git, never one inside the repository.
func findGit(workdir string) (string, error) {
	places := append(append([]string{}, gitPlaces...), process.Programs("git", os.Environ())...)
	for _, place := range places {
		resolved, err := filepath.EvalSymlinks(place)
		if err != nil || !filepath.IsAbs(resolved) || untrusted.IsBelow(resolved, workdir) {
			continue
		}
		if info, err := os.Stat(resolved); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return place, nil
		}
	}
	return "", errors.New("the image has no git")
}

// head returns the root of the repository around a folder and its commit.
func (g *trustedGit) head(workdir string) (string, string, error) {
	output, err := g.run(workdir, nil, "rev-parse", "--show-toplevel", "HEAD")
	if err != nil {
		return "", "", err
	}
	// The last line is the hash; what is before it is one path, whatever it holds.
	root, commit, found := cutLast(strings.TrimSuffix(output, "\n"))
	if !found || !isFullHash(commit) {
		return "", "", &gitError{end: process.Ending{ExitCode: 1}, text: "git names no commit"}
	}
	return root, commit, nil
}

func cutLast(text string) (string, string, bool) {
	index := strings.LastIndexByte(text, '\n')
	if index < 0 {
		return "", "", false
	}
	return text[:index], text[index+1:], true
}

// adopt makes an empty git directory of our own for the work tree; its object format is the
// repository's, because binary patches name their contents by hash.
func (g *trustedGit) adopt(root, objectFormat string) error {
	g.objectFormat = objectFormat
	g.environment = append(g.environment, "GIT_DIR="+g.folder())
	g.setWorktree(root)
	return g.makeFolder()
}

func (g *trustedGit) setWorktree(root string) {
	const name = "GIT_WORK_TREE="
	g.environment = slices.DeleteFunc(g.environment, func(each string) bool { return strings.HasPrefix(each, name) })
	g.environment = append(g.environment, name+root)
}

func commitFormat(commit string) string {
	if len(commit) == 64 {
		return "sha256"
	}
	return "sha1"
}

// folder is the git directory of our own.
func (g *trustedGit) folder() string { return filepath.Join(g.scratch, "git") }

// restore makes everything but the objects new, after a command that may have reached it; the index
// is empty then.
func (g *trustedGit) restore() error {
	entries, err := os.ReadDir(g.folder())
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() != "objects" {
			err = errors.Join(err, os.RemoveAll(filepath.Join(g.folder(), entry.Name())))
		}
	}
	return errors.Join(err,
		os.RemoveAll(filepath.Join(g.folder(), "objects", "info")), g.writeSettings(), g.makeFolder())
}

func (g *trustedGit) setAttributes(text string) error {
	return os.WriteFile(filepath.Join(g.folder(), "info", "attributes"), []byte(text), 0o600)
}

func (g *trustedGit) makeFolder() error {
	folder := g.folder()
	config := "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
	if g.objectFormat == "sha256" {
		config = "[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectformat = sha256\n"
	}
	return errors.Join(
		os.MkdirAll(filepath.Join(folder, "objects"), 0o700),
		os.MkdirAll(filepath.Join(folder, "refs"), 0o700),
		os.MkdirAll(filepath.Join(folder, "info"), 0o700),
		os.WriteFile(filepath.Join(folder, "HEAD"), []byte("ref: refs/heads/none\n"), 0o600),
		os.WriteFile(filepath.Join(folder, "config"), []byte(config), 0o600),
		g.setAttributes(GitAttributes))
}

// run runs git with the content on its standard input and returns what it printed.
func (g *trustedGit) run(folder string, input []byte, arguments ...string) (string, error) {
	file, err := memoryFile(input)
	if err != nil {
		return "", err
	}
	defer file.Close()
	for index := range g.kept {
		*g.kept[index] = process.Capture{HeadLimit: g.outputBytes, TailLimit: gitOutputBytes}
	}
	phase := specs.Phase{Name: "git", Command: append([]string{g.program}, arguments...), Workdir: folder, TimeoutSeconds: &g.limit}
	end, err := process.RunCommand(phase, g.environment, file, g.kept, g.stop)
	g.heard.Add(g.kept[1].Head)
	if err != nil {
		return "", err
	}
	if end.ExitCode != 0 || end.Signal != 0 || end.Fault != "" {
		return "", &gitError{end: end, text: g.words(end), lacks: nodeWords.Match(g.kept[1].Head) || nodeWords.Match(g.kept[1].Last())}
	}
	if g.kept[0].Total > int64(len(g.kept[0].Head)) {
		return "", &gitError{end: end, text: "git printed too much"}
	}
	return string(g.kept[0].Head), nil
}

func (g *trustedGit) words(end process.Ending) string {
	text := end.Fault
	if text == "" {
		text = strings.TrimSpace(strings.ToValidUTF8(string(g.kept[1].Head), "\uFFFD"))
	}
	switch {
	case end.TimedOut:
		text = fmt.Sprintf("git did not end within %g s", g.limit)
	case end.Signal != 0:
		text = fmt.Sprintf("git was ended by signal %d", end.Signal)
	case text == "":
		text = fmt.Sprintf("git ended with exit code %d", end.ExitCode)
	}
	return cutText(text, gitErrorBytes)
}

func cutText(text string, limit int) string {
	if len(text) > limit {
		return outcome.Cut(text, limit)
	}
	return text
}

// close removes everything: the checks find nothing of it.
func (g *trustedGit) close() error { return os.RemoveAll(g.scratch) }

// memoryFile returns a file that has no name.
func memoryFile(content []byte) (*os.File, error) {
	if content == nil {
		return os.Open(os.DevNull)
	}
	fd, err := unix.MemfdCreate("input", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	file := os.NewFile(uintptr(fd), "input")
	if _, err := file.Write(content); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	_, err = file.Seek(0, 0)
	return file, err
}
