package main

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

const digestPrefix = "sha256:"

// Modes that a copy keeps: no set-id bit ever crosses.
const (
	fileModes   = 0o777
	folderModes = 0o1777
)

// treeDigest is the digest of a folder as docs/reference/protocol.md defines it. Entries that are
// neither regular files nor folders are an error: lanes are made by the operator.
func treeDigest(name string) (string, error) {
	root, err := openFolder(name)
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
	return digestPrefix + hex.EncodeToString(total.Sum(nil)), nil
}

func collect(folder *os.File, prefix string, depth int, lines *[]string) error {
	if depth > maxDepth {
		return errTooDeep
	}
	return eachEntry(folder, func(name string, status unix.Stat_t) error {
		place := path.Join(prefix, name)
		switch kindOf(status) {
		case unix.S_IFDIR:
			child, err := openFolderAt(folder, name)
			if err != nil {
				return err
			}
			defer child.Close()
			return collect(child, place, depth+1, lines)
		case unix.S_IFREG:
			file, err := openFileAt(folder, name)
			if err != nil {
				return err
			}
			defer file.Close()
			content, err := contentDigest(file)
			*lines = append(*lines, place+"\x00"+content+"\n")
			return err
		default:
			return fmt.Errorf("%s is neither a file nor a folder", place)
		}
	})
}

// contentDigest returns the hex SHA-256 of everything that the reader yields.
func contentDigest(content io.Reader) (string, error) {
	hash := sha256.New()
	if _, err := io.CopyBuffer(hash, content, make([]byte, 1<<18)); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// copyInto copies the content of a folder into a place: regular files, folders and symlinks,
// with modes and times, owned by whoever runs this. Other entries are left out.
func copyInto(target *place, from string) error {
	source, err := openFolder(from)
	if err != nil {
		return err
	}
	defer source.Close()
	return copyFolder(target, source, "", 0)
}

func copyFolder(target *place, source *os.File, prefix string, depth int) error {
	if depth > maxDepth {
		return errTooDeep
	}
	return eachEntry(source, func(name string, status unix.Stat_t) error {
		return copyEntry(target, source, path.Join(prefix, name), status, depth)
	})
}

func copyEntry(target *place, source *os.File, place string, status unix.Stat_t, depth int) error {
	name := path.Base(place)
	switch kindOf(status) {
	case unix.S_IFDIR:
		child, err := openFolderAt(source, name)
		if err != nil {
			return err
		}
		defer child.Close()
		if err := target.putFolder(place, status.Mode&folderModes); err != nil {
			return err
		}
		return copyFolder(target, child, place, depth+1)
	case unix.S_IFREG:
		file, err := openFileAt(source, name)
		if err != nil {
			return err
		}
		defer file.Close()
		times := []unix.Timespec{status.Mtim, status.Mtim}
		return target.putFile(place, status.Mode&fileModes, file, times)
	case unix.S_IFLNK:
		link, err := readLinkAt(source, name)
		if err != nil {
			return err
		}
		return target.putLink(place, link)
	default:
		return nil
	}
}
