package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// prepare puts the program into the tools volume and makes folders with exact modes.
func prepare(text string) int {
	var spec prepareSpec
	err := decode(text, &spec)
	if err == nil && spec.Version != 1 {
		err = fmt.Errorf("specification: version %d is not known", spec.Version)
	}
	if err == nil {
		err = errors.Join(installSelf(spec.Tools), makeFolders(spec.Folders), copyFolders(spec.Copies))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "supervise:", err)
		return codeOwnFault
	}
	return codeDone
}

// installSelf copies the running program to <tools>/supervise; a repetition replaces it.
func installSelf(tools string) error {
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	target := filepath.Join(tools, "supervise")
	draft := target + ".new"
	if err := os.Remove(draft); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(draft, program, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(draft, 0o755); err != nil {
		return err
	}
	return os.Rename(draft, target)
}

func makeFolders(folders []folderSpec) error {
	const octal, modeBits = 8, 12
	for _, folder := range folders {
		mode, err := strconv.ParseUint(folder.Mode, octal, modeBits)
		if err != nil {
			return fmt.Errorf("mode of %s: %w", folder.Path, err)
		}
		if err := os.MkdirAll(folder.Path, 0o755); err != nil {
			return err
		}
		if err := unix.Chmod(folder.Path, uint32(mode)); err != nil {
			return &os.PathError{Op: "chmod", Path: folder.Path, Err: err}
		}
	}
	return nil
}

func copyFolders(copies []transferSpec) error {
	for _, each := range copies {
		if err := os.MkdirAll(each.To, 0o755); err != nil {
			return err
		}
		if err := transfer(each, nil); err != nil {
			return fmt.Errorf("copy %s: %w", each.From, err)
		}
	}
	return nil
}

// copyTree is the job of the init container that takes an image's folder into the workspace.
func copyTree(text string, _ <-chan struct{}) message {
	var spec copySpec
	err := decode(text, &spec)
	if err == nil && spec.Version != 1 {
		err = fmt.Errorf("specification: version %d is not known", spec.Version)
	}
	if err == nil {
		err = absolute([]string{spec.From, spec.To})
	}
	if err != nil {
		return failure(codeOwnFault, err)
	}
	if err := transfer(transferSpec{spec.From, spec.To}, nil); err != nil {
		return failure(codeStaging, err)
	}
	return message{V: 1, Code: codeDone}
}

// transfer copies the content of one folder into another.
func transfer(spec transferSpec, protected []string) error {
	target, err := openPlace(spec.To, protected)
	if err != nil {
		return err
	}
	return errors.Join(copyInto(target, spec.From), target.close())
}
