package courier

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

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
	archive *bundle
	losses  *outcome.Losses
	linked  map[untrusted.Inode]firstName
}

// firstName is what the first name of a file with several names stands for.
type firstName struct{ path, digest string }

// packWorkspace writes a workspace as an archive whose bytes depend on the tree alone (contract 13.3, 21.2).
// The tree is read twice: once to refuse what is too large before anything is written, once to write.
func packWorkspace(
	root *os.File, archive *bundle, bounds specs.CandidateBounds, exclude map[string]bool, modes untrusted.Modes,
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
	return packedTree{untrusted.DigestPrefix + hex.EncodeToString(total.Sum(nil)), tree.Losses}, archive.end()
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
	header := tarEntry{name: entry.Path, mode: entry.Mode & untrusted.KeptModes, modified: entry.Modified}
	switch entry.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		header.name, header.kind = entry.Path+"/", tarFolder
		return textDigest(""), p.archive.begin(header)
	case unix.S_IFLNK:
		header.link, header.kind = entry.Target, tarLink
		return textDigest(entry.Target), p.archive.begin(header)
	}
	if first, isKnown := p.linked[entry.Inode]; isKnown {
		header.link, header.kind = first.path, tarHardLink
		return first.digest, p.archive.begin(header)
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
	header.kind = tarFile
	digest, err := p.archive.addFile(header, file, entry)
	if entry.Inode != (untrusted.Inode{}) {
		p.linked[entry.Inode] = firstName{entry.Path, digest}
	}
	return digest, err
}

func textDigest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
