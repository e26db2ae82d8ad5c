package courier

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/bundle"
	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

// packedTree is what a bundle holds: the digest of path, mode and content of each entry in their order.
type packedTree struct {
	digest string
	losses outcome.Losses
}

// packer writes a tree into a bundle.
type packer struct {
	archive *bundle.Writer
	losses  *outcome.Losses
	linked  map[untrusted.Inode]firstName
}

// firstName is what the first name of a file with several names stands for.
type firstName struct{ path, digest string }

// packWorkspace writes a workspace as an archive whose bytes depend on the tree alone (contract 13.3, 21.2).
// The tree is read twice: once to refuse what is too large before anything is written, once to write.
func packWorkspace(
	root *os.File, archive *bundle.Writer, bounds specs.CandidateBounds, exclude map[string]bool, modes untrusted.Modes,
) (packedTree, error) {
	if err := measureTree(root, bounds, exclude, modes); err != nil {
		return packedTree{}, err
	}
	tree, err := untrusted.NewWalk(root, bounds, exclude, modes)
	if err != nil {
		return packedTree{}, err
	}
	total := sha256.New()
	packing := packer{archive, &tree.Losses, map[untrusted.Inode]firstName{}}
	add := func(entry untrusted.TreeEntry) error {
		digest, err := packing.add(entry)
		if digest != "" {
			_, _ = fmt.Fprintf(total, "%s\x00%06o\x00%s\n", entry.Path, entry.Mode, digest)
		}
		return err
	}
	self, err := tree.Root()
	if err := errors.Join(err, add(self), tree.Each(add)); err != nil {
		return packedTree{}, err
	}
	return packedTree{untrusted.DigestPrefix + hex.EncodeToString(total.Sum(nil)), tree.Losses}, archive.End()
}

func measureTree(root *os.File, bounds specs.CandidateBounds, exclude map[string]bool, modes untrusted.Modes) error {
	tree, err := untrusted.NewWalk(root, bounds, exclude, modes)
	if err != nil {
		return err
	}
	return tree.Each(func(untrusted.TreeEntry) error { return nil })
}

// add adds an entry and returns the digest of its content, empty for a file that cannot be opened.
func (p packer) add(entry untrusted.TreeEntry) (string, error) {
	header := bundle.Entry{Name: entry.Path, Mode: entry.Mode & untrusted.KeptModes, Modified: entry.Modified}
	switch entry.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		header.Name, header.Kind = entry.Path+"/", bundle.Folder
		return textDigest(""), p.archive.Begin(header)
	case unix.S_IFLNK:
		header.Link, header.Kind = entry.Target, bundle.Link
		return textDigest(entry.Target), p.archive.Begin(header)
	}
	if first, isKnown := p.linked[entry.Inode]; isKnown {
		header.Link, header.Kind = first.path, bundle.HardLink
		return first.digest, p.archive.Begin(header)
	}
	file, err := untrusted.OpenRegularAt(entry.Parent, entry.Name, "a file")
	if untrusted.IsUnreadable(err) {
		p.losses.Drop(entry.Path, untrusted.LostUnreadable)
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer file.Close()
	header.Kind = bundle.File
	digest, err := p.archive.AddFile(header, file, entry.Size, entry.Extents)
	if entry.Inode != (untrusted.Inode{}) {
		p.linked[entry.Inode] = firstName{entry.Path, digest}
	}
	return digest, err
}

func textDigest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
