package staging

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/rootfs"
	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

// StageCandidate checks the digest of a sealed workspace and unpacks it into its place. When copy has brought
// what lies beside and over it, links that must not be there go, and folders get their modes and times.
func StageCandidate(spec specs.Candidate, protected []string, copy func() error) (outcome.Losses, error) {
	var losses outcome.Losses
	judge, err := newLinkJudge(spec.To)
	if err != nil {
		return losses, err
	}
	archive, size, err := openSealed(spec.Path, spec.Digest)
	if err != nil {
		return losses, err
	}
	defer archive.Close()
	target, err := openPlace(spec.To, protected)
	if err != nil {
		return losses, err
	}
	err = unpack(archive, size, target)
	if err == nil {
		err = copy()
	}
	if err == nil {
		err = target.judgeLinks(judge, &losses)
	}
	return losses, untrusted.OfCandidate(errors.Join(err, target.close()))
}

// openSealed opens an archive that has the expected digest.
func openSealed(name, digest string) (*os.File, int64, error) {
	folder, err := untrusted.OpenFolder(path.Dir(name))
	if err != nil {
		return nil, 0, err
	}
	defer folder.Close()
	archive, err := untrusted.OpenFileAt(folder, path.Base(name))
	if err != nil {
		return nil, 0, err
	}
	size, err := checkDigest(archive, digest)
	if err != nil {
		_ = archive.Close()
	}
	return archive, size, err
}

func checkDigest(archive *os.File, expected string) (int64, error) {
	digest, err := untrusted.ContentDigest(archive)
	if err != nil {
		return 0, err
	}
	if untrusted.DigestPrefix+digest != expected {
		return 0, errors.New("the candidate's digest is not the expected one")
	}
	size, err := archive.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	_, err = archive.Seek(0, io.SeekStart)
	return size, err
}

// unpack reads entries until the archive ends. What they hold together is bounded by the
// archive's own size, so no header can promise more than there is.
func unpack(archive io.Reader, size int64, target *place) error {
	reader := tar.NewReader(archive)
	var total int64
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("candidate: %w", err)
		}
		total += untrusted.TarBlock + max(header.Size, 0)
		if total > size {
			return errors.New("candidate: entries are larger than the archive")
		}
		if err := unpackEntry(target, header, reader); err != nil {
			if target.inRoot != nil && target.inRoot.replaces && isOfRights(err) {
				return &RightsError{path.Join("/", header.Name), err}
			}
			return fmt.Errorf("candidate: %w", err)
		}
	}
}

func unpackEntry(target *place, header *tar.Header, content io.Reader) error {
	name := strings.TrimSuffix(header.Name, "/")
	state := entryState{mode: uint32(header.Mode) & untrusted.KeptModes, modified: timeOf(header.ModTime)}
	if target.inRoot != nil {
		state.owner = &owner{header.Uid, header.Gid}
		if header.Typeflag == tar.TypeDir {
			state.mode = uint32(header.Mode) & rootfs.KeptModes
		}
	}
	if name == untrusted.RootPath && header.Typeflag == tar.TypeDir {
		target.putRoot(state)
		return nil
	}
	if !specs.IsCleanRelative(name) {
		return fmt.Errorf("name %q is not a clean relative path", header.Name)
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return target.putFolder(name, state)
	case tar.TypeReg:
		return target.putFile(name, state, func(file *os.File) error { return target.fill(file, header, content) })
	case tar.TypeLink:
		return target.putHardLink(name, header.Linkname)
	case tar.TypeSymlink:
		return target.putLink(name, header.Linkname, state)
	case tar.TypeChar:
		if target.inRoot != nil && header.Devmajor == 0 && header.Devminor == 0 {
			return target.remove(name)
		}
	}
	return fmt.Errorf("entry %q has type %q", name, header.Typeflag)
}

func timeOf(moment time.Time) unix.Timespec {
	return unix.Timespec{Sec: moment.Unix(), Nsec: int64(moment.Nanosecond())}
}

// fill writes a file's content; what a sparse file does not hold stays a hole.
func (p *place) fill(file *os.File, header *tar.Header, content io.Reader) error {
	text, isSparse := header.PAXRecords[untrusted.ExtentsRecord]
	if !isSparse {
		return p.copyTo(file, content)
	}
	size, parts, err := untrusted.ParseExtents(text, header.Size)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if _, err := file.Seek(part.Offset, io.SeekStart); err != nil {
			return err
		}
		if err := p.copyTo(file, io.LimitReader(content, part.Length)); err != nil {
			return err
		}
	}
	return file.Truncate(size)
}
