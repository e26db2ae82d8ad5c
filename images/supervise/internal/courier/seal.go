package courier

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"unicode/utf8"

	"securebench.dev/supervise/internal/bundle"
	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/rootfs"
	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

// Names of sealed candidates.
const (
	textFile      = "candidate.txt"
	workspaceFile = "workspace.tar"
	rootFile      = "root.tar"

	messageCharacters = 500
)

// sealedCandidate is what was sealed, or why there is nothing.
type sealedCandidate struct {
	problem, message string
	file, digest     string
	size             int64
	candidate        string         // digest of its bytes, or of path, mode and content of all entries
	losses           outcome.Losses // of a workspace
}

// fields are those of the termination message.
func (s sealedCandidate) fields() string {
	return fmt.Sprintf(
		`"problem":%s,"message":%s,"file":%s,"digest":%s,"size_bytes":%d,"candidate_sha256":%s,"dropped_entries":%d%s`,
		orNull(s.problem), outcome.ASCIIJSON(firstCharacters(s.message, messageCharacters)), orNull(s.file),
		outcome.ASCIIJSON(s.digest), s.size, outcome.ASCIIJSON(s.candidate), s.losses.Entries, s.named(),
	)
}

func (s sealedCandidate) named() string {
	parts := make([]string, len(s.losses.Named))
	for index, loss := range s.losses.Named {
		parts[index] = loss.ASCIIJSON()
	}
	if len(parts) == 0 {
		return ""
	}
	return `,"dropped":[` + strings.Join(parts, ",") + "]"
}

func orNull(text string) string {
	if text == "" {
		return "null"
	}
	return outcome.ASCIIJSON(text)
}

func firstCharacters(text string, count int) string {
	for at := range text {
		if count--; count < 0 {
			return text[:at]
		}
	}
	return text
}

// seal makes a candidate of bounded size with a digest of what the agent left; whatever the agent did wrong
// is a problem in it.
func (t job) seal(stdout *output) (sealedCandidate, error) {
	var sealed sealedCandidate
	var err error
	switch t.Seal.Extraction.Mode {
	case specs.FromNothing:
	case specs.FromTree:
		sealed, err = t.sealWorkspace()
	case specs.FromRoot:
		sealed, err = t.sealRoot()
	default:
		sealed, err = t.sealText(stdout)
	}
	var refused *untrusted.UnreadableError
	if errors.As(err, &refused) {
		return sealedCandidate{problem: refused.Problem, message: refused.Text}, nil
	}
	return sealed, err
}

func (t job) sealText(stdout *output) (sealedCandidate, error) {
	name, source, err := t.text(stdout)
	if err != nil {
		return sealedCandidate{}, err
	}
	defer source.Close()
	hash, check := sha256.New(), textCheck{}
	sealed := sealedCandidate{file: textFile}
	err = untrusted.WriteNew(path.Join(volumes, "candidate"), textFile, func(draft io.Writer) error {
		count, err := io.CopyBuffer(io.MultiWriter(draft, hash, &check), source, make([]byte, untrusted.CopyBytes))
		sealed.size = count
		if err != nil {
			return err
		}
		return check.end(name)
	})
	sealed.digest = untrusted.DigestPrefix + hex.EncodeToString(hash.Sum(nil))
	sealed.candidate = sealed.digest
	return sealed, err
}

// text opens what the candidate is, and says what messages call it.
func (t job) text(stdout *output) (string, io.ReadCloser, error) {
	limit := t.Seal.LimitBytes
	switch t.Seal.Extraction.Mode {
	case specs.FromStdout:
		source, err := stdout.whole(limit)
		return outcome.StreamNames[0], source, err
	case specs.FromDiff:
		source, err := openUntrusted("output", outcome.DiffFile, limit)
		if untrusted.IsMissing(err) {
			// Without a diff the agent left no repository (contract 21.3).
			err = untrusted.Unreadable(untrusted.ProblemInvalid, "git could not tell what changed in the checkout")
		}
		return outcome.DiffFile, source, err
	default:
		name := *t.Seal.Extraction.Path
		source, err := openUntrusted("workspace", name, limit)
		return name, source, err
	}
}

func openUntrusted(volume, name string, limit int64) (io.ReadCloser, error) {
	root, err := untrusted.OpenFolder(path.Join(volumes, volume))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return untrusted.OpenBounded(root, name, limit)
}

// whole reads a stream that was captured from its first to its last byte.
func (o *output) whole(limit int64) (io.ReadCloser, error) {
	switch {
	case o == nil:
		return nil, untrusted.Unreadable(untrusted.ProblemMissing, "the command's output was not captured")
	case o.total > limit:
		return nil, untrusted.Unreadable(untrusted.ProblemTooLarge, "stdout has more than %d bytes", limit)
	case o.kept() != o.total:
		return nil, untrusted.Unreadable(untrusted.ProblemInvalid, "stdout was not captured completely")
	}
	return io.NopCloser(o.section(0, o.total)), nil
}

// textCheck looks at text that is written to it in pieces.
type textCheck struct {
	offset  int64 // of what is pending
	pending []byte
	invalid bool
	hasNUL  bool
}

func (c *textCheck) Write(data []byte) (int, error) {
	if !c.invalid {
		c.pending = append(c.pending, data...)
		c.examine()
	}
	return len(data), nil
}

func (c *textCheck) examine() {
	used := 0
	for used < len(c.pending) && utf8.FullRune(c.pending[used:]) {
		character, size := utf8.DecodeRune(c.pending[used:])
		if character == utf8.RuneError && size == 1 {
			c.invalid = true
			break
		}
		c.hasNUL = c.hasNUL || character == 0
		used += size
	}
	c.offset += int64(used)
	c.pending = c.pending[:copy(c.pending, c.pending[used:])]
}

func (c *textCheck) end(name string) error {
	if c.invalid || len(c.pending) > 0 {
		return untrusted.Unreadable(untrusted.ProblemInvalid, "%s is not UTF-8 text at byte %d", name, c.offset)
	}
	if c.hasNUL {
		return untrusted.Unreadable(untrusted.ProblemInvalid, "%s is not text: it holds a NUL character", name)
	}
	return nil
}

func (t job) sealWorkspace() (sealedCandidate, error) {
	workspace := path.Join(volumes, "workspace")
	info, err := os.Stat(workspace)
	if _, isOfNode := untrusted.NodeError(err); isOfNode {
		return sealedCandidate{}, err
	}
	if err != nil || !info.IsDir() {
		return sealedCandidate{}, untrusted.Unreadable(untrusted.ProblemMissing, "the workspace directory does not exist")
	}
	root, err := untrusted.OpenFolder(workspace)
	if err != nil {
		return sealedCandidate{}, err
	}
	defer root.Close()
	modes, err := t.readModes()
	if err != nil {
		return sealedCandidate{}, err
	}
	sealed := sealedCandidate{file: workspaceFile}
	err = untrusted.WriteBuffered(path.Join(volumes, "candidate"), workspaceFile, func(target *bufio.Writer) error {
		archive := bundle.New(target)
		packed, err := packWorkspace(root, archive, t.Limits, t.excluded(), modes)
		sealed.candidate, sealed.losses = packed.digest, packed.losses
		sealed.size = archive.Size()
		sealed.digest = archive.Digest()
		return err
	})
	return sealed, err
}

// sealRoot seals what supervise found changed in the root file system.
func (t job) sealRoot() (sealedCandidate, error) {
	source, err := openUntrusted("output", outcome.RootFile, rootfs.ArchiveBytes(t.Limits))
	if untrusted.IsMissing(err) {
		return sealedCandidate{}, t.withoutRoot()
	}
	if err != nil {
		return sealedCandidate{}, err
	}
	defer source.Close()
	sealed := sealedCandidate{file: rootFile}
	err = untrusted.WriteBuffered(path.Join(volumes, "candidate"), rootFile, func(target *bufio.Writer) error {
		archive := bundle.New(target)
		found, err := rootfs.Seal(bufio.NewReaderSize(source, untrusted.CopyBytes), t.Limits, t.excluded(), archive)
		sealed.candidate, sealed.losses = found.Digest, found.Losses
		sealed.size, sealed.digest = archive.Size(), archive.Digest()
		return err
	})
	return sealed, err
}

// withoutRoot returns why there is no archive of changes.
func (t job) withoutRoot() error {
	output, err := untrusted.OpenFolder(path.Join(volumes, "output"))
	if err != nil {
		return err
	}
	defer output.Close()
	note, err := untrusted.ReadRegular(output, outcome.RootNote, noteBytes)
	if untrusted.IsMissing(err) {
		return untrusted.Unreadable(untrusted.ProblemInvalid, "it is not known what changed in the root file system")
	}
	if err != nil {
		return err
	}
	return rootfs.ReadNote(string(note), t.Limits)
}

// excluded are paths that never belong to a candidate.
func (t job) excluded() map[string]bool {
	exclude := make(map[string]bool, len(t.Seal.Exclude))
	for _, name := range t.Seal.Exclude {
		exclude[name] = true
	}
	return exclude
}

// readModes reads the modes that supervise changed so that the workspace can be read.
func (t job) readModes() (untrusted.Modes, error) {
	output, err := untrusted.OpenFolder(path.Join(volumes, "output"))
	if err != nil {
		return untrusted.Modes{}, err
	}
	defer output.Close()
	return untrusted.ReadModes(output, t.Limits.WorkspaceFiles)
}
