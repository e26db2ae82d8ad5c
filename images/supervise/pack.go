package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
)

// packedTree is what a bundle holds: the digest of path, mode and content of each entry in their order.
type packedTree struct {
	digest  string
	dropped int64
}

// packWorkspace writes a workspace as an archive whose bytes depend on the tree alone (contract 13.3, 21.2).
// The tree is read twice: once to refuse what is too large before anything is written, once to write.
func packWorkspace(
	root *os.File, archive *bundle, bounds candidateBounds, exclude map[string]bool,
) (packedTree, error) {
	if err := measureTree(root, bounds, exclude); err != nil {
		return packedTree{}, err
	}
	tree, err := newWalk(root, bounds, exclude)
	if err != nil {
		return packedTree{}, err
	}
	total := sha256.New()
	err = tree.each(func(entry treeEntry) error {
		digest, err := archive.add(entry)
		if digest == "" {
			tree.dropped++
			return err
		}
		_, _ = fmt.Fprintf(total, "%s\x00%s\x00%s\n", entry.path, entry.kind, digest)
		return err
	})
	if err != nil {
		return packedTree{}, err
	}
	return packedTree{digestPrefix + hex.EncodeToString(total.Sum(nil)), tree.dropped}, archive.end()
}

func measureTree(root *os.File, bounds candidateBounds, exclude map[string]bool) error {
	tree, err := newWalk(root, bounds, exclude)
	if err != nil {
		return err
	}
	return tree.each(func(treeEntry) error { return nil })
}

// add adds an entry and returns the digest of its content, empty for a file that cannot be opened.
func (b *bundle) add(entry treeEntry) (string, error) {
	switch entry.kind {
	case kindFolder:
		return textDigest(""), b.addFolder(entry.path)
	case kindLink:
		return textDigest(entry.target), b.addLink(entry.path, entry.target)
	}
	file, err := openRegularAt(entry.parent, entry.name, "a file")
	if isUnreadable(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer file.Close()
	return b.addFile(entry.path, file, entry.size, entry.kind == kindProgram)
}

func textDigest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
