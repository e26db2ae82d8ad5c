package untrusted

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// DigestPrefix stands before a digest in hexadecimal.
const DigestPrefix = "sha256:"

// TreeDigest is the digest of a folder as docs/reference/protocol.md defines it. Entries that are
// neither regular files nor folders are an error: lanes are made by the operator.
func TreeDigest(name string) (string, error) {
	root, err := OpenFolder(name)
	if err != nil {
		return "", err
	}
	defer root.Close()
	var lines []string
	if err := collect(root, "", 0, &lines); err != nil {
		return "", err
	}
	// NUL sorts before every byte of a name, so the lines are in the order of their paths.
	slices.Sort(lines)
	total := sha256.New()
	for _, line := range lines {
		_, _ = io.WriteString(total, line)
	}
	return DigestPrefix + hex.EncodeToString(total.Sum(nil)), nil
}

func collect(folder *os.File, prefix string, depth int, lines *[]string) error {
	if depth > MaxDepth {
		return ErrTooDeep
	}
	return EachEntry(folder, func(name string, status unix.Stat_t) error {
		place := path.Join(prefix, name)
		switch KindOf(status) {
		case unix.S_IFDIR:
			child, err := OpenFolderAt(folder, name)
			if err != nil {
				return err
			}
			defer child.Close()
			return collect(child, place, depth+1, lines)
		case unix.S_IFREG:
			file, err := OpenFileAt(folder, name)
			if err != nil {
				return err
			}
			defer file.Close()
			content, err := ContentDigest(file)
			*lines = append(*lines, place+"\x00"+content+"\n")
			return err
		default:
			return fmt.Errorf("%s is neither a file nor a folder", place)
		}
	})
}

// ContentDigest returns the hex SHA-256 of everything that the reader yields.
func ContentDigest(content io.Reader) (string, error) {
	hash := sha256.New()
	if _, err := io.CopyBuffer(hash, content, make([]byte, 1<<18)); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
