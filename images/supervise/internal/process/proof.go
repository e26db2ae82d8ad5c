package process

import (
	"crypto/rand"
	"crypto/subtle"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// proofBytes is the length of the secret that a command gives back when it has completed.
	proofBytes = 32

	// gradingBytes is the most that it may say behind the secret: what its verdict rested on.
	gradingBytes = 16

	// A command finds the secret and the pipe for its answer behind the three usual descriptors.
	secretDescriptor = firstInherited
	answerDescriptor = firstInherited + 1
)

// proof tells a command that completed from one that merely ended with 0: code that the command
// loads can end the process, but it has to look for the secret to do it unnoticed.
type proof struct {
	secret []byte
	source *os.File // with the secret in it
	answer *os.File
	theirs *os.File
}

// newProof returns nil for a command that is asked for none.
func newProof(asked bool) (*proof, error) {
	if !asked {
		return nil, nil
	}
	secret := make([]byte, proofBytes)
	_, _ = rand.Read(secret) // it never fails
	source, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	_, err = writer.Write(secret)
	_ = writer.Close()
	if err != nil {
		_ = source.Close()
		return nil, err
	}
	answer, theirs, err := os.Pipe()
	if err != nil {
		_ = source.Close()
		return nil, err
	}
	return &proof{secret, source, answer, theirs}, nil
}

// files are what the command gets as secretDescriptor and answerDescriptor.
func (p *proof) files() []uintptr {
	if p == nil {
		return nil
	}
	return []uintptr{p.source.Fd(), p.theirs.Fd()}
}

// started gives up the command's ends.
func (p *proof) started() {
	if p != nil {
		_ = p.source.Close()
		_ = p.theirs.Close()
	}
}

// given reports whether the answer was the secret, and the word that stood behind it; no other
// process is left.
func (p *proof) given() (grading string, holds bool) {
	if p == nil {
		return "", true
	}
	_ = p.answer.SetReadDeadline(time.Now().Add(drainAllowance))
	answer, err := io.ReadAll(io.LimitReader(p.answer, proofBytes+gradingBytes+1))
	if err != nil || len(answer) < proofBytes || len(answer) > proofBytes+gradingBytes {
		return "", false
	}
	secret, word := answer[:proofBytes], string(answer[proofBytes:])
	isWord := strings.Trim(word, "abcdefghijklmnopqrstuvwxyz-") == ""
	return word, isWord && subtle.ConstantTimeCompare(secret, p.secret) == 1
}

func (p *proof) close() {
	if p != nil {
		p.started()
		_ = p.answer.Close()
	}
}

// canBecome reports whether this process may start and end commands of another user.
func canBecome() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return false
	}
	const needed = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL
	return sets[0].Effective&needed == needed
}
