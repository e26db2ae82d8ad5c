package rootfs

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"path"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/bundle"
	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

const (
	// maxFolders and maxNamesBytes are those of a workspace.
	maxFolders    = 256
	maxNamesBytes = 32 << 20

	setID = unix.S_ISUID | unix.S_ISGID
	// KeptModes of a folder may give its group to what is made in it, as folders of distributions do.
	KeptModes = untrusted.KeptModes | unix.S_ISGID
)

// Why an entry is not kept, or not as it was.
const (
	lostNoText     = "its name is not UTF-8"
	lostNoTarget   = "its target is not UTF-8"
	lostLongPath   = "its path is too long"
	lostDeep       = "too many folders inside each other"
	lostSetID      = "without its set-id bits"
	lostUnreadable = "cannot be read"
	lostMissing    = "no such artifact"
	lostFirstName  = "another name of a file that is not kept"
)

// lostKinds are kinds of entries that no candidate has. Where one is, the verifier has nothing.
var lostKinds = map[byte]string{
	bundle.FIFO: "a FIFO", bundle.Socket: "a socket", bundle.Device: "a device",
}

// ArchiveBytes is the most that an archive of changes within bounds can take.
func ArchiveBytes(bounds specs.CandidateBounds) int64 {
	const headers = 6 * untrusted.TarBlock // of an entry: two headers, and records with short values
	return bounds.WorkspaceBytes + bounds.WorkspaceFiles*headers + 3*maxNamesBytes
}

// Sealed is what a sealed archive of changes stands for.
type Sealed struct {
	Digest string // of path, mode, owner and content of each entry in their order
	Losses outcome.Losses
}

// Seal reads an archive that says what changed and writes it anew, so that its bytes depend on the changes alone.
// The archive is untrusted: the command may have written it itself. An entry that is not where the reading of a file
// system would have put it makes the whole archive no candidate; what cannot be kept of a file system is dropped.
func Seal(source io.Reader, bounds specs.CandidateBounds, exclude map[string]bool, archive *bundle.Writer) (Sealed, error) {
	s := &sealer{
		bounds: bounds, exclude: exclude, archive: archive, total: sha256.New(), files: map[string]string{},
	}
	reader := tar.NewReader(source)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = s.entry(header, reader)
		} else {
			err = ofArchive(err)
		}
		if err != nil {
			return Sealed{}, err
		}
	}
	return Sealed{untrusted.DigestPrefix + hex.EncodeToString(s.total.Sum(nil)), s.losses}, archive.End()
}

// ofArchive is the error of a reader: the node's, or that of an archive which cannot be read.
func ofArchive(err error) error {
	if _, isOfNode := untrusted.NodeError(err); isOfNode || untrusted.IsUnreadable(err) {
		return err
	}
	return invalid("the archive cannot be read")
}

func invalid(form string, values ...any) error {
	return untrusted.Unreadable(untrusted.ProblemInvalid, "what changed in the root file system: "+form, values...)
}

func tooLarge(form string, bound int64) error {
	return untrusted.Unreadable(untrusted.ProblemTooLarge, "the changes of the root file system have more than "+form, bound)
}

// ReadNote returns why there are no changes, of a note that Write left.
func ReadNote(text string, bounds specs.CandidateBounds) error {
	switch text {
	case TooManyBytes:
		return tooLarge("%d bytes", bounds.WorkspaceBytes)
	case TooManyEntries:
		return tooLarge("%d entries", bounds.WorkspaceFiles)
	default:
		return invalid("the note about it cannot be read")
	}
}

type sealer struct {
	bounds             specs.CandidateBounds
	exclude            map[string]bool
	archive            *bundle.Writer
	total              hash.Hash
	losses             outcome.Losses
	seen, names, bytes int64
	last               string            // path of the entry before
	closed             string            // path of the last entry that is no folder, with a slash
	files              map[string]string // digests of the files that are kept, by path
}

func (s *sealer) entry(header *tar.Header, content io.Reader) error {
	name, isFolder := strings.CutSuffix(header.Name, "/")
	if isFolder != (header.Typeflag == tar.TypeDir) || !isCanonical(name) {
		return invalid("%q is no path of it", outcomePath(header.Name))
	}
	if s.last != "" && !isBefore(s.last, name) || s.closed != "" && strings.HasPrefix(name, s.closed) {
		return invalid("%q is not in its place", outcomePath(name))
	}
	s.last = name
	if !isFolder {
		s.closed = name + "/"
	}
	if err := s.count(header, name); err != nil {
		return err
	}
	if s.isExcluded(name) {
		return nil
	}
	if why := lostName(name); why != "" {
		s.losses.Drop(name, why)
		return nil
	}
	made, err := entryFrom(header, name)
	if err != nil {
		return err
	}
	return s.keep(header, made, content)
}

// count counts an entry against the bounds before anything of it is written.
func (s *sealer) count(header *tar.Header, name string) error {
	s.seen++
	if s.seen > s.bounds.WorkspaceFiles {
		return tooLarge("%d entries", s.bounds.WorkspaceFiles)
	}
	s.names += int64(len(name) + len(header.Linkname))
	if s.names > maxNamesBytes {
		return tooLarge("%d bytes of names", maxNamesBytes)
	}
	if header.Size < 0 || header.Size > 0 && header.Typeflag != tar.TypeReg {
		return invalid("%q has a content that it cannot have", outcomePath(name))
	}
	if header.Size > s.bounds.WorkspaceBytes-s.bytes-s.names {
		return tooLarge("%d bytes", s.bounds.WorkspaceBytes)
	}
	s.bytes += header.Size
	return nil
}

func (s *sealer) isExcluded(name string) bool {
	for at := name; at != "."; at = path.Dir(at) {
		if s.exclude[at] {
			return true
		}
	}
	return false
}

func lostName(name string) string {
	switch {
	case !utf8.ValidString(name):
		return lostNoText
	case len(name) > maxPathBytes:
		return lostLongPath
	case strings.Count(name, "/") >= maxFolders:
		return lostDeep
	default:
		return ""
	}
}

// entryFrom is an entry as it is written again.
func entryFrom(header *tar.Header, name string) (bundle.Entry, error) {
	for _, id := range []int{header.Uid, header.Gid} {
		if id < 0 || int64(id) >= math.MaxUint32 {
			return bundle.Entry{}, invalid("%q has no possible owner", outcomePath(name))
		}
	}
	modified := unix.Timespec{Sec: header.ModTime.Unix(), Nsec: int64(header.ModTime.Nanosecond())}
	return bundle.Entry{
		Name: name, Mode: uint32(header.Mode) & KeptModes, UID: uint32(header.Uid), GID: uint32(header.Gid),
		Size: header.Size, Modified: modified,
	}, nil
}

// keep writes an entry, or notes that it is not kept.
func (s *sealer) keep(header *tar.Header, made bundle.Entry, content io.Reader) error {
	name := made.Name
	if header.Typeflag != tar.TypeDir {
		made.Mode &= untrusted.KeptModes
	}
	if header.Mode&setID != 0 && header.Typeflag == tar.TypeReg {
		s.losses.Name(name, lostSetID)
	}
	switch header.Typeflag {
	case tar.TypeDir:
		made.Name, made.Kind = name+"/", bundle.Folder
		return s.begin(name, made, "")
	case tar.TypeReg:
		return s.file(header, made, content)
	case tar.TypeSymlink:
		if !utf8.ValidString(header.Linkname) {
			s.losses.Drop(name, lostNoTarget)
			return s.begin(name, whiteout(name), "")
		}
		if header.Linkname == "" || len(header.Linkname) > maxPathBytes {
			return invalid("%q leads nowhere", outcomePath(name))
		}
		made.Kind, made.Link = bundle.Link, header.Linkname
		return s.begin(name, made, header.Linkname)
	case tar.TypeLink:
		return s.hardLink(header, made)
	case tar.TypeChar:
		if header.Devmajor != 0 || header.Devminor != 0 {
			return invalid("%q is a device", outcomePath(name))
		}
		return s.begin(name, whiteout(name), "")
	case bundle.Unreadable:
		s.losses.Drop(name, lostUnreadable)
		return nil
	case bundle.Missing:
		s.losses.Drop(name, lostMissing)
		return nil
	}
	why, isKnown := lostKinds[header.Typeflag]
	if !isKnown {
		return invalid("%q is no kind of entry", outcomePath(name))
	}
	s.losses.Drop(name, why)
	return s.begin(name, whiteout(name), "")
}

func whiteout(name string) bundle.Entry { return bundle.Entry{Name: name, Kind: bundle.Whiteout} }

// begin writes an entry without content.
func (s *sealer) begin(name string, made bundle.Entry, text string) error {
	sum := sha256.Sum256([]byte(text))
	s.add(name, made, hex.EncodeToString(sum[:]))
	return s.archive.Begin(made)
}

func (s *sealer) add(name string, made bundle.Entry, digest string) {
	_, _ = fmt.Fprintf(s.total, "%s\x00%c%06o\x00%d:%d\x00%s\n", name, made.Kind, made.Mode, made.UID, made.GID, digest)
}

func (s *sealer) file(header *tar.Header, made bundle.Entry, content io.Reader) error {
	made.Kind = bundle.File
	if text, isSparse := header.PAXRecords[untrusted.ExtentsRecord]; isSparse {
		size, parts, err := untrusted.ParseExtents(text, header.Size)
		if err != nil {
			return invalid("%q: %v", outcomePath(made.Name), err)
		}
		made.Extents = untrusted.ExtentText(size, parts)
	}
	digest, err := s.archive.AddStream(made, content)
	if err != nil {
		return ofArchive(err)
	}
	s.add(made.Name, made, digest)
	s.files[made.Name] = digest
	return nil
}

// hardLink keeps another name of a file that is in the archive.
func (s *sealer) hardLink(header *tar.Header, made bundle.Entry) error {
	digest, isKept := s.files[header.Linkname]
	if !isKept {
		s.losses.Drop(made.Name, lostFirstName)
		return s.begin(made.Name, whiteout(made.Name), "")
	}
	made.Kind, made.Link = bundle.HardLink, header.Linkname
	s.add(made.Name, made, digest)
	return s.archive.Begin(made)
}

// isCanonical reports whether a name is a path below the root as a walk spells it.
func isCanonical(name string) bool {
	return name != "" && name != "." && name != ".." && path.Clean(name) == name && name[0] != '/' &&
		!strings.HasPrefix(name, "../") && !strings.Contains(name, "\x00")
}

// isBefore reports whether one path comes before another one in a walk: a folder before what is in it, and that
// before what follows the folder.
func isBefore(first, second string) bool {
	for first != "" && second != "" {
		var one, two string
		one, first, _ = strings.Cut(first, "/")
		two, second, _ = strings.Cut(second, "/")
		if one != two {
			return one < two
		}
	}
	return first == "" && second != ""
}

// outcomePath is a path as a message has it.
func outcomePath(name string) string {
	const most = 100
	if name = strings.ToValidUTF8(name, "\uFFFD"); len(name) > most {
		name = outcome.Cut(name, most)
	}
	return name
}
