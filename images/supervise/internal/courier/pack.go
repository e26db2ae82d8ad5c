package courier

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"

	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

// packedTree is what a bundle holds: the digest of path, mode and content of each entry in their order.
type packedTree struct {
	digest  string
	dropped int64
}

// packWorkspace writes a workspace as an archive whose bytes depend on the tree alone (contract 13.3, 21.2).
// The tree is read twice: once to refuse what is too large before anything is written, once to write.
func packWorkspace(
	root *os.File, archive *bundle, bounds specs.Bounds, exclude map[string]bool,
) (packedTree, error) {
	if err := measureTree(root, bounds, exclude); err != nil {
		return packedTree{}, err
	}
	tree, err := untrusted.NewWalk(root, bounds, exclude)
	if err != nil {
		return packedTree{}, err
	}
	total := sha256.New()
	err = tree.Each(func(entry untrusted.TreeEntry) error {
		digest, err := archive.add(entry)
		if digest == "" {
			tree.Dropped++
			return err
		}
		_, _ = fmt.Fprintf(total, "%s\x00%s\x00%s\n", entry.Path, entry.Kind, digest)
		return err
	})
	if err != nil {
		return packedTree{}, err
	}
	return packedTree{untrusted.DigestPrefix + hex.EncodeToString(total.Sum(nil)), tree.Dropped}, archive.end()
}

func measureTree(root *os.File, bounds specs.Bounds, exclude map[string]bool) error {
	tree, err := untrusted.NewWalk(root, bounds, exclude)
	if err != nil {
		return err
	}
	return tree.Each(func(untrusted.TreeEntry) error { return nil })
}

// add adds an entry and returns the digest of its content, empty for a file that cannot be opened.
func (b *bundle) add(entry untrusted.TreeEntry) (string, error) {
	switch entry.Kind {
	case untrusted.KindFolder:
		return textDigest(""), b.addFolder(entry.Path)
	case untrusted.KindLink:
		return textDigest(entry.Target), b.addLink(entry.Path, entry.Target)
	}
	file, err := untrusted.OpenRegularAt(entry.Parent, entry.Name, "a file")
	if untrusted.IsUnreadable(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer file.Close()
	return b.addFile(entry.Path, file, entry.Size, entry.Kind == untrusted.KindProgram)
}

func textDigest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
