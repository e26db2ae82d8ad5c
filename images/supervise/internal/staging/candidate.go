package staging

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

// UnpackCandidate checks the digest of a sealed workspace and unpacks it into its place.
func UnpackCandidate(spec specs.Candidate, protected []string) error {
	folder, err := untrusted.OpenFolder(path.Dir(spec.Path))
	if err != nil {
		return err
	}
	defer folder.Close()
	archive, err := untrusted.OpenFileAt(folder, path.Base(spec.Path))
	if err != nil {
		return err
	}
	defer archive.Close()
	digest, err := untrusted.ContentDigest(archive)
	if err != nil {
		return err
	}
	if untrusted.DigestPrefix+digest != spec.Digest {
		return errors.New("the candidate's digest is not the expected one")
	}
	size, err := archive.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return err
	}
	target, err := openPlace(spec.To, protected)
	if err != nil {
		return err
	}
	return untrusted.OfCandidate(errors.Join(unpack(archive, size, target), target.close()))
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
			return fmt.Errorf("candidate: %w", err)
		}
	}
}

func unpackEntry(target *place, header *tar.Header, content io.Reader) error {
	name := strings.TrimSuffix(header.Name, "/")
	if !specs.IsCleanRelative(name) {
		return fmt.Errorf("name %q is not a clean relative path", header.Name)
	}
	mode := uint32(0o644)
	if header.Mode&0o111 != 0 {
		mode = 0o755
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return target.putFolder(name, 0o755)
	case tar.TypeReg:
		return target.putFile(name, mode, content, nil)
	case tar.TypeSymlink:
		if !untrusted.StaysInside(name, header.Linkname) {
			return fmt.Errorf("link %q leads out", name)
		}
		return target.putLink(name, header.Linkname)
	default:
		return fmt.Errorf("entry %q has type %q", name, header.Typeflag)
	}
}
