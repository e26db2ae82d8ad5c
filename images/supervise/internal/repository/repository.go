// Package repository makes the image's checkout ready for its checks, and tells what an agent changed in one.
package repository

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/process"
	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

// Steps before the checks; CodePhase + step is the exit code when one fails. The operator knows
// whose fault each is.
const (
	StepHead      = iota // the commit cannot be read
	StepBase             // it is not the one that the row names
	StepSetup            // the setup patch does not apply
	StepTestAlone        // test patch or control do not apply without the candidate
	StepCandidate        // the candidate does not apply
	StepPaths            // it changed other paths than it declares
	StepTest             // the test patch does not apply to what the candidate left
	StepControl          // neither does the control
)

// Patches are the contents that a repository gets.
type Patches struct {
	setup, candidate, test, control []byte
	declared                        changes
}

// StepError is the end of a preparation that failed.
type StepError struct {
	code  int
	phase string
	end   process.Ending
	text  string
}

func (e *StepError) Error() string { return e.text }

// Message describes the step that failed; the list of changes is written beside it.
func (e *StepError) Message(ready *Checkout, streams *os.File, kept [2]*process.Capture) outcome.Message {
	result := process.Describe(specs.Phase{Name: e.phase}, e.end, kept)
	result.Code, result.Error, result.Commit = e.code, e.text, ready.Commit
	if e.code == outcome.CodePhase+StepPaths && streams != nil {
		content, err := ready.patches.declared.encode()
		if err == nil {
			err = untrusted.ReplaceFileAt(streams, outcome.ChangedFile, content)
		}
		if err != nil {
			return outcome.Failure(outcome.CodeOwnFault, err)
		}
	}
	return result
}

// Load reads everything that a repository gets, with its digests where it has some.
func Load(s *specs.Repository) (Patches, error) {
	var result Patches
	var err error
	if result.candidate, err = readChecked(s.Candidate); err != nil {
		return result, err
	}
	declared, err := readChecked(s.Declared)
	if err != nil {
		return result, err
	}
	if result.declared, err = decodeDeclared(declared); err != nil {
		return result, untrusted.OfCandidate(err)
	}
	for _, each := range []struct {
		spec *specs.PatchField
		into *[]byte
	}{{s.SetupPatch, &result.setup}, {s.TestPatch, &result.test}, {s.Control, &result.control}} {
		if each.spec == nil {
			continue
		}
		if *each.into, err = readPatch(each.spec); err != nil {
			return result, err
		}
	}
	return result, nil
}

func readChecked(spec specs.DigestedPath) ([]byte, error) {
	content, err := readBounded(spec.Path)
	if err != nil {
		return nil, err
	}
	digest, err := untrusted.ContentDigest(bytes.NewReader(content))
	if err == nil && untrusted.DigestPrefix+digest != spec.Digest {
		err = fmt.Errorf("%s: the digest is not the expected one", spec.Path)
	}
	return content, err
}

func readPatch(p *specs.PatchField) ([]byte, error) {
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
	folder, err := untrusted.OpenFolder(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	file, err := untrusted.OpenFileAt(folder, filepath.Base(name))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > specs.MaxPatchFile {
		return nil, fmt.Errorf("%s is too large", name)
	}
	return os.ReadFile(name)
}

// Checkout is the image's checkout while it is made ready.
type Checkout struct {
	spec    specs.Repository
	patches Patches
	git     *trustedGit
	root    string
	Commit  string
	// examine looks at the repository with the author's patches and without the candidate.
	examine func(files []string) error
}

// UnfitError is the end of a check that its author has to mend.
type UnfitError struct {
	Result *outcome.Message
	Kept   [2]*process.Capture
}

func (e *UnfitError) Error() string { return e.Result.Error }

// Prepare brings the repository into the state in which the checks run. The result
// is never nil and holds the commit also when a step failed; an error that is no StepError is our
// own fault.
func Prepare(whole specs.Run, content Patches, kept [2]*process.Capture, streams *os.File, stop <-chan struct{}) (*Checkout, error) {
	spec := *whole.Repository
	result := &Checkout{spec: spec, patches: content}
	result.examine = func(files []string) error {
		prechecks := whole.Prechecks
		if spec.Compile != nil && len(files) > 0 {
			phase := *spec.Compile
			phase.Command = append(append([]string{}, phase.Command...), files...)
			prechecks = append(append([]specs.Phase{}, prechecks...), phase)
		}
		if unfit, kept := process.Precheck(whole, prechecks, streams, stop); unfit != nil {
			return &UnfitError{unfit, kept}
		}
		return nil
	}
	program, err := findGit(spec.Workdir)
	if err != nil {
		text, end := err.Error(), process.Ending{ExitCode: process.CodeNotFound}
		return result, &StepError{code: outcome.CodePhase + StepHead, phase: "base_commit", text: text, end: end}
	}
	git, err := newTrustedGit(program, spec, kept, stop)
	if err != nil {
		return result, err
	}
	result.git = git
	return result, errors.Join(result.prepare(), git.close())
}

func (r *Checkout) prepare() error {
	if err := r.readCommit(); err != nil {
		return err
	}
	if err := r.apply("setup_patch", StepSetup, r.patches.setup); err != nil {
		return err
	}
	if err := r.tryTests(); err != nil {
		return err
	}
	if err := r.applyCandidate(); err != nil {
		return err
	}
	if err := r.apply("test_patch", StepTest, r.patches.test); err != nil {
		return err
	}
	return r.apply("test_patch", StepControl, r.patches.control)
}

// readCommit finds the repository and its commit; a full hash in the row has to be that commit.
func (r *Checkout) readCommit() error {
	root, commit, err := r.git.head(r.spec.Workdir)
	if err != nil {
		return failedStep(err, "base_commit", StepHead)
	}
	r.root, r.Commit = root, commit
	wanted := strings.ToLower(r.spec.BaseCommit)
	if isFullHash(wanted) && wanted != commit {
		text := fmt.Sprintf("HEAD is %s, not %s", commit, wanted)
		return &StepError{code: outcome.CodePhase + StepBase, phase: "base_commit", text: text, end: process.Ending{ExitCode: 1}}
	}
	return r.git.adopt(root, commitFormat(commit))
}

// tryTests applies the author's patches to the repository without the candidate: when that
// fails, or what they bring cannot work, the row is to blame. The repository is as before afterwards.
func (r *Checkout) tryTests() error {
	if r.patches.test == nil && r.patches.control == nil {
		return r.examine(nil)
	}
	for _, words := range [][]string{{"--check"}, {}} {
		if err := r.run("test_patch", StepTestAlone, r.patches.test, words...); err != nil {
			return err
		}
	}
	if err := r.run("test_patch", StepTestAlone, r.patches.control, "--check"); err != nil {
		return err
	}
	files, err := r.pythonTests()
	if err != nil {
		return err
	}
	if err := r.examine(files); err != nil {
		return err
	}
	return r.run("test_patch", StepTestAlone, r.patches.test, "--reverse")
}

// pythonTests are the files of the test patch that a test tool loads by their names.
func (r *Checkout) pythonTests() ([]string, error) {
	if r.patches.test == nil || r.spec.Compile == nil {
		return nil, nil
	}
	list, err := r.git.run(r.root, r.patches.test, "apply", "--numstat", "-z", "-")
	if err != nil {
		return nil, failedStep(err, "test_patch", StepTestAlone)
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
func (r *Checkout) applyCandidate() error {
	before, err := takeInventory(r.root, r.patches.declared.paths())
	if err != nil {
		return fmt.Errorf("repository: %w", err)
	}
	if err := r.apply("candidate_patch", StepCandidate, r.patches.candidate); err != nil {
		return err
	}
	after, err := takeInventory(r.root, r.patches.declared.paths())
	failed := &StepError{code: outcome.CodePhase + StepPaths, phase: "candidate_policy", end: process.Ending{ExitCode: 1}}
	if _, isOfNode := untrusted.NodeError(err); isOfNode {
		return fmt.Errorf("repository: %w", err)
	}
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

func (r *Checkout) apply(phase string, step int, patch []byte) error {
	return r.run(phase, step, patch)
}

func (r *Checkout) run(phase string, step int, patch []byte, words ...string) error {
	if patch == nil {
		return nil
	}
	arguments := append(append([]string{"apply", "--binary"}, words...), "-")
	if _, err := r.git.run(r.root, patch, arguments...); err != nil {
		return failedStep(err, phase, step)
	}
	return nil
}

// failedStep turns the end of a git command into that of its step. Only what is certain is held
// against anybody: a git that was killed, or that a disk failed, says nothing about a patch, nor does
// a time limit that was over before the candidate was there.
func failedStep(err error, phase string, step int) error {
	var ended *gitError
	if !errors.As(err, &ended) {
		return err
	}
	failed := &StepError{code: outcome.CodePhase + step, phase: phase, end: ended.end, text: ended.text}
	hasCandidate := step >= StepCandidate
	switch {
	case ended.end.Stopped:
		failed.code = process.StopCode()
	case ended.end.TimedOut && hasCandidate:
		failed.code = outcome.CodeTimeout
	case ended.end.TimedOut || ended.isDisturbed():
		failed.code, failed.text = outcome.CodeStaging, phase+": "+ended.text
		if hasCandidate {
			failed.phase = outcome.PhaseCandidate
		}
	}
	return failed
}

func isFullHash(text string) bool {
	return (len(text) == 40 || len(text) == 64) && strings.Trim(text, "0123456789abcdef") == ""
}
