package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Steps before the checks; codePhase + step is the exit code when one fails. The operator knows
// whose fault each is.
const (
	stepHead      = iota // the commit cannot be read
	stepBase             // it is not the one that the row names
	stepSetup            // the setup patch does not apply
	stepTestAlone        // test patch or control do not apply without the candidate
	stepCandidate        // the candidate does not apply
	stepPaths            // it changed other paths than it declares
	stepTest             // the test patch does not apply to what the candidate left
	stepControl          // neither does the control
)

// maxPatchFile bounds every file that is read into memory: lanes and candidates are smaller.
const maxPatchFile = 256 << 20

// changesFile says which paths really changed when they are not the declared ones. No candidate
// code has run by then, so the operator may believe it.
const changesFile = "changed.json"

// repositorySpec says how the image's repository is made ready. Everything is read into memory
// before the repository is touched.
type repositorySpec struct {
	Workdir        string     `json:"workdir"`
	Scratch        string     `json:"scratch"`
	BaseCommit     string     `json:"base_commit"`
	TimeoutSeconds float64    `json:"timeout_seconds"`
	Setup          *patchSpec `json:"setup_patch"`
	Candidate      fileSpec   `json:"candidate"`
	Declared       fileSpec   `json:"declared"`
	Test           *patchSpec `json:"test_patch"`
	Control        *patchSpec `json:"control"`
	// Compile is a precheck that gets the names of the Python tests that the test patch brings.
	Compile *phaseSpec `json:"compile"`
}

// patchSpec is a field of a JSON file: a patch, or an object whose key patch is one.
type patchSpec struct {
	Path  string `json:"path"`
	Field string `json:"field"`
}

type fileSpec struct {
	Path   string `json:"path"`
	Digest string `json:"digest"`
}

// patches are the contents that a repository gets.
type patches struct {
	setup, candidate, test, control []byte
	declared                        changes
}

// stepError is the end of a preparation that failed.
type stepError struct {
	code  int
	phase string
	end   ending
	text  string
}

func (e *stepError) Error() string { return e.text }

// message describes the step that failed; the list of changes is written beside it.
func (e *stepError) message(ready *repository, streams *os.File, kept [2]*capture) message {
	result := describe(phaseSpec{Name: e.phase}, e.end, kept)
	result.Code, result.Error, result.Commit = e.code, e.text, ready.commit
	if e.code == codePhase+stepPaths && streams != nil {
		content, err := ready.patches.declared.encode()
		if err == nil {
			err = replaceFileAt(streams, changesFile, content)
		}
		if err != nil {
			return failure(codeOwnFault, err)
		}
	}
	return result
}

func (s *repositorySpec) paths() []string {
	paths := []string{s.Scratch, s.Candidate.Path, s.Declared.Path}
	for _, patch := range []*patchSpec{s.Setup, s.Test, s.Control} {
		if patch != nil {
			paths = append(paths, patch.Path)
		}
	}
	return paths
}

func (s *repositorySpec) load() (patches, error) {
	var result patches
	var err error
	if result.candidate, err = readChecked(s.Candidate); err != nil {
		return result, err
	}
	declared, err := readChecked(s.Declared)
	if err != nil {
		return result, err
	}
	if result.declared, err = decodeDeclared(declared); err != nil {
		return result, ofCandidate(err)
	}
	for _, each := range []struct {
		spec *patchSpec
		into *[]byte
	}{{s.Setup, &result.setup}, {s.Test, &result.test}, {s.Control, &result.control}} {
		if each.spec == nil {
			continue
		}
		if *each.into, err = each.spec.read(); err != nil {
			return result, err
		}
	}
	return result, nil
}

func readChecked(spec fileSpec) ([]byte, error) {
	content, err := readBounded(spec.Path)
	if err != nil {
		return nil, err
	}
	digest, err := contentDigest(bytes.NewReader(content))
	if err == nil && digestPrefix+digest != spec.Digest {
		err = fmt.Errorf("%s: the digest is not the expected one", spec.Path)
	}
	return content, err
}

func (p *patchSpec) read() ([]byte, error) {
	content, err := readBounded(p.Path)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(content, &fields); err != nil {
		return nil, fmt.Errorf("%s: %w", p.Path, err)
	}
	var text string
	if json.Unmarshal(fields[p.Field], &text) != nil {
		var inline struct {
			Patch string `json:"patch"`
		}
		if err := json.Unmarshal(fields[p.Field], &inline); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", p.Path, p.Field, err)
		}
		text = inline.Patch
	}
	// A patch whose last line lacks its end is corrupt for git.
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return []byte(text), nil
}

// readBounded reads a regular file of a read-only mount.
func readBounded(name string) ([]byte, error) {
	folder, err := openFolder(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	file, err := openFileAt(folder, filepath.Base(name))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxPatchFile {
		return nil, fmt.Errorf("%s is too large", name)
	}
	return os.ReadFile(name)
}

// repository is the image's checkout while it is made ready.
type repository struct {
	spec    repositorySpec
	patches patches
	git     *trustedGit
	root    string
	commit  string
	// examine looks at the repository with the author's patches and without the candidate.
	examine func(files []string) error
}

// unfitError is the end of a check that its author has to mend.
type unfitError struct {
	result *message
	kept   [2]*capture
}

func (e *unfitError) Error() string { return e.result.Error }

// prepareRepository brings the repository into the state in which the checks run. The result
// is never nil and holds the commit also when a step failed; an error that is no stepError is our
// own fault.
func prepareRepository(whole runSpec, content patches, kept [2]*capture, streams *os.File, stop <-chan struct{}) (*repository, error) {
	spec := *whole.Repository
	result := &repository{spec: spec, patches: content}
	result.examine = func(files []string) error {
		prechecks := whole.Prechecks
		if spec.Compile != nil && len(files) > 0 {
			phase := *spec.Compile
			phase.Command = append(append([]string{}, phase.Command...), files...)
			prechecks = append(append([]phaseSpec{}, prechecks...), phase)
		}
		if unfit, kept := precheck(whole, prechecks, streams, stop); unfit != nil {
			return &unfitError{unfit, kept}
		}
		return nil
	}
	program, err := findGit(spec.Workdir)
	if err != nil {
		text, end := err.Error(), ending{exitCode: codeNotFound}
		return result, &stepError{code: codePhase + stepHead, phase: "base_commit", text: text, end: end}
	}
	git, err := newTrustedGit(program, spec, kept, stop)
	if err != nil {
		return result, err
	}
	result.git = git
	return result, errors.Join(result.prepare(), git.close())
}

func (r *repository) prepare() error {
	if err := r.readCommit(); err != nil {
		return err
	}
	if err := r.apply("setup_patch", stepSetup, r.patches.setup); err != nil {
		return err
	}
	if err := r.tryTests(); err != nil {
		return err
	}
	if err := r.applyCandidate(); err != nil {
		return err
	}
	if err := r.apply("test_patch", stepTest, r.patches.test); err != nil {
		return err
	}
	return r.apply("test_patch", stepControl, r.patches.control)
}

// readCommit finds the repository and its commit; a full hash in the row has to be that commit.
func (r *repository) readCommit() error {
	root, commit, err := r.git.head(r.spec.Workdir)
	if err != nil {
		return failedStep(err, "base_commit", stepHead)
	}
	r.root, r.commit = root, commit
	wanted := strings.ToLower(r.spec.BaseCommit)
	if isFullHash(wanted) && wanted != commit {
		text := fmt.Sprintf("HEAD is %s, not %s", commit, wanted)
		return &stepError{code: codePhase + stepBase, phase: "base_commit", text: text, end: ending{exitCode: 1}}
	}
	return r.git.adopt(root, commit)
}

// tryTests applies the author's patches to the repository without the candidate: when that
// fails, or what they bring cannot work, the row is to blame. The repository is as before afterwards.
func (r *repository) tryTests() error {
	if r.patches.test == nil && r.patches.control == nil {
		return r.examine(nil)
	}
	for _, words := range [][]string{{"--check"}, {}} {
		if err := r.run("test_patch", stepTestAlone, r.patches.test, words...); err != nil {
			return err
		}
	}
	if err := r.run("test_patch", stepTestAlone, r.patches.control, "--check"); err != nil {
		return err
	}
	files, err := r.pythonTests()
	if err != nil {
		return err
	}
	if err := r.examine(files); err != nil {
		return err
	}
	return r.run("test_patch", stepTestAlone, r.patches.test, "--reverse")
}

// pythonTests are the files of the test patch that a test tool loads by their names.
func (r *repository) pythonTests() ([]string, error) {
	if r.patches.test == nil || r.spec.Compile == nil {
		return nil, nil
	}
	list, err := r.git.run(r.root, r.patches.test, "apply", "--numstat", "-z", "-")
	if err != nil {
		return nil, failedStep(err, "test_patch", stepTestAlone)
	}
	var files []string
	for _, entry := range strings.Split(list, "\x00") {
		// added, deleted, path
		if fields := strings.SplitN(entry, "\t", 3); len(fields) == 3 && isPythonTest(fields[2]) {
			files = append(files, filepath.Join(r.root, fields[2]))
		}
	}
	return files, nil
}

func isPythonTest(name string) bool {
	stem, isPython := strings.CutSuffix(filepath.Base(name), ".py")
	return isPython && (strings.HasPrefix(stem, "test_") || strings.HasSuffix(stem, "_test") || stem == "conftest")
}

// applyCandidate applies the candidate and compares what it changed with what it declares.
func (r *repository) applyCandidate() error {
	before, err := takeInventory(r.root, r.patches.declared.paths())
	if err != nil {
		return fmt.Errorf("repository: %w", err)
	}
	if err := r.apply("candidate_patch", stepCandidate, r.patches.candidate); err != nil {
		return err
	}
	after, err := takeInventory(r.root, r.patches.declared.paths())
	failed := &stepError{code: codePhase + stepPaths, phase: "candidate_policy", end: ending{exitCode: 1}}
	if err != nil {
		failed.text = "the changed repository cannot be read: " + err.Error()
		return failed
	}
	changed := before.compare(after)
	if changed.equal(r.patches.declared) {
		return nil
	}
	failed.text = fmt.Sprintf("%d paths changed, %d are declared", len(changed), len(r.patches.declared))
	r.patches.declared = changed
	return failed
}

func (r *repository) apply(phase string, step int, patch []byte) error {
	return r.run(phase, step, patch)
}

func (r *repository) run(phase string, step int, patch []byte, words ...string) error {
	if patch == nil {
		return nil
	}
	arguments := append(append([]string{"apply", "--binary"}, words...), "-")
	if _, err := r.git.run(r.root, patch, arguments...); err != nil {
		return failedStep(err, phase, step)
	}
	return nil
}

// failedStep turns the end of a git command into that of its step.
func failedStep(err error, phase string, step int) error {
	var ended *gitError
	if !errors.As(err, &ended) {
		return err
	}
	failed := &stepError{code: codePhase + step, phase: phase, end: ended.end, text: ended.text}
	switch {
	case ended.end.stopped:
		failed.code = codeStopped
	case ended.end.timedOut:
		failed.code = codeTimeout
	}
	return failed
}

func isFullHash(text string) bool {
	return (len(text) == 40 || len(text) == 64) && strings.Trim(text, "0123456789abcdef") == ""
}
