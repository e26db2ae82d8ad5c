// Package bundle writes candidates that are trees.
package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/untrusted"
)

const (
	tarRecord = 20 * untrusted.TarBlock
	tarName   = 100     // bytes of a name or target in a header
	tarID     = 1 << 21 // from this user or group on a header has no room for it
	tarSize   = 1 << 33 // from this size or time on a header has no room for it

	extended = 'x'
)

// Kinds of entries.
const (
	Folder   = '5'
	Link     = '2'
	HardLink = '1'
	File     = '0'
	// Whiteout is a device without numbers: what had its name is gone.
	Whiteout = '3'
	FIFO     = '6'
	Device   = '4'
	// Socket, Unreadable and Missing are kinds of our own: archives have none. Missing is a path that was asked for.
	Socket     = 's'
	Unreadable = 'u'
	Missing    = 'm'
)

// Writer writes a tar of form pax whose bytes depend on its entries alone. Nothing is kept of an entry that is in it.
type Writer struct {
	target io.Writer
	hash   hash.Hash
	size   int64
	buffer []byte
}

// New returns a writer of an archive that begins.
func New(target io.Writer) *Writer { return &Writer{target: target, hash: sha256.New()} }

// Size is how many bytes were written.
func (b *Writer) Size() int64 { return b.size }

// Digest is that of the bytes that were written.
func (b *Writer) Digest() string { return untrusted.DigestPrefix + hex.EncodeToString(b.hash.Sum(nil)) }

// Entry is one entry: a folder's name ends with a slash.
type Entry struct {
	Name, Link string
	Kind       byte
	Mode       uint32
	UID, GID   uint32
	Size       int64
	Modified   unix.Timespec
	Extents    string // of a sparse file, as untrusted.ParseExtents reads them
}

// AddFile adds a file and returns the hex SHA-256 of what is carried of it. Of a sparse file these are the
// parts that hold data.
func (b *Writer) AddFile(header Entry, file *os.File, size int64, parts []untrusted.Extent) (string, error) {
	header.Size = untrusted.Stored(size, parts)
	if parts == nil {
		parts = []untrusted.Extent{{Length: size}}
	} else {
		header.Extents = untrusted.ExtentText(size, parts)
	}
	if err := b.Begin(header); err != nil {
		return "", err
	}
	if b.buffer == nil {
		b.buffer = make([]byte, untrusted.CopyBytes)
	}
	content := sha256.New()
	_, _ = io.WriteString(content, header.Extents)
	for _, part := range parts {
		if err := b.addPart(file, part, content); err != nil {
			return "", err
		}
	}
	if _, err := file.Seek(size, io.SeekStart); err != nil {
		return "", err
	}
	if count, err := readSome(file, b.buffer[:1]); err != nil || count > 0 {
		return "", errors.Join(err, errChanged)
	}
	return hex.EncodeToString(content.Sum(nil)), b.fill(untrusted.TarBlock)
}

// AddStream adds a file from a reader of exactly its bytes and returns what AddFile does.
func (b *Writer) AddStream(header Entry, source io.Reader) (string, error) {
	if err := b.Begin(header); err != nil {
		return "", err
	}
	content := sha256.New()
	_, _ = io.WriteString(content, header.Extents)
	if b.buffer == nil {
		b.buffer = make([]byte, untrusted.CopyBytes)
	}
	count, err := io.CopyBuffer(io.MultiWriter(content, writerFunc(b.write)), source, b.buffer)
	if err == nil && count != header.Size {
		err = errChanged
	}
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(content.Sum(nil)), b.fill(untrusted.TarBlock)
}

type writerFunc func([]byte) error

func (f writerFunc) Write(data []byte) (int, error) { return len(data), f(data) }

func (b *Writer) addPart(file *os.File, part untrusted.Extent, content hash.Hash) error {
	if _, err := file.Seek(part.Offset, io.SeekStart); err != nil {
		return err
	}
	for left := part.Length; left > 0; {
		count, err := readSome(file, b.buffer[:min(left, untrusted.CopyBytes)])
		if err != nil {
			return err
		}
		if count == 0 {
			return errChanged
		}
		_, _ = content.Write(b.buffer[:count])
		if err := b.write(b.buffer[:count]); err != nil {
			return err
		}
		left -= int64(count)
	}
	return nil
}

var errChanged = untrusted.Unreadable(untrusted.ProblemInvalid, "a file changed while it was read")

// readSome returns 0 at the end of a file. That it cannot be read is the agent's doing, unless a disk fails.
func readSome(file *os.File, buffer []byte) (int, error) {
	count, err := file.Read(buffer)
	if err == nil || errors.Is(err, io.EOF) {
		return count, nil
	}
	if _, isOfNode := untrusted.NodeError(err); isOfNode {
		return 0, err
	}
	return 0, untrusted.Unreadable(untrusted.ProblemInvalid, "a file cannot be read")
}

// End closes the archive.
func (b *Writer) End() error {
	if err := b.write(make([]byte, 2*untrusted.TarBlock)); err != nil {
		return err
	}
	return b.fill(tarRecord)
}

// Begin writes what stands before the content of an entry.
func (b *Writer) Begin(entry Entry) error {
	var records []byte
	if !fitsHeader(entry.Name) {
		records = append(records, paxRecord("path", entry.Name)...)
	}
	if !fitsHeader(entry.Link) {
		records = append(records, paxRecord("linkpath", entry.Link)...)
	}
	if entry.Size >= tarSize {
		records = append(records, paxRecord("size", strconv.FormatInt(entry.Size, 10))...)
		entry.Size = 0
	}
	if time := entry.Modified; time.Nsec != 0 || time.Sec < 0 || time.Sec >= tarSize {
		records = append(records, paxRecord("mtime", paxTime(time))...)
		entry.Modified = unix.Timespec{}
	}
	if entry.Extents != "" {
		records = append(records, paxRecord(untrusted.ExtentsRecord, entry.Extents)...)
	}
	for _, owner := range []struct {
		key string
		id  *uint32
	}{{"uid", &entry.UID}, {"gid", &entry.GID}} {
		if *owner.id >= tarID {
			records = append(records, paxRecord(owner.key, strconv.FormatUint(uint64(*owner.id), 10))...)
			*owner.id = 0
		}
	}
	if records != nil {
		extended := Entry{Name: "././@PaxHeader", Kind: extended, Size: int64(len(records))}
		if err := errors.Join(b.write(extended.header()), b.write(records), b.fill(untrusted.TarBlock)); err != nil {
			return err
		}
	}
	return b.write(entry.header())
}

func fitsHeader(text string) bool {
	for index := range len(text) {
		if text[index] >= utf8.RuneSelf {
			return false
		}
	}
	return len(text) <= tarName
}

// paxRecord is a record that begins with its own length.
func paxRecord(key, value string) []byte {
	size := len(key) + len(value) + len(" =\n")
	total := size + len(strconv.Itoa(size))
	total = size + len(strconv.Itoa(total))
	return fmt.Appendf(nil, "%d %s=%s\n", total, key, value)
}

// paxTime is a time in decimal seconds.
func paxTime(time unix.Timespec) string {
	sign, seconds, nanoseconds := "", time.Sec, time.Nsec
	if seconds < 0 && nanoseconds > 0 {
		seconds, nanoseconds = seconds+1, 1_000_000_000-nanoseconds
	}
	if time.Sec < 0 {
		sign, seconds = "-", -seconds
	}
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%s%d.%09d", sign, seconds, nanoseconds), "0"), ".")
}

// header is the block before an entry; what does not fit is cut, other characters than ASCII are question
// marks, as the records before it have both in full.
func (e Entry) header() []byte {
	block := make([]byte, 0, untrusted.TarBlock)
	block = append(block, field(e.Name, tarName)...)
	block = fmt.Appendf(block, "%07o\x00%07o\x00%07o\x00%011o\x00%011o\x00", e.Mode, e.UID, e.GID, e.Size, e.Modified.Sec)
	checksum := len(block)
	block = append(block, "        "...)
	block = append(block, e.Kind)
	block = append(block, field(e.Link, tarName)...)
	block = append(block, "ustar\x0000"...)
	block = append(block, make([]byte, untrusted.TarBlock-len(block))...)
	sum := 0
	for _, value := range block {
		sum += int(value)
	}
	copy(block[checksum:], fmt.Sprintf("%06o\x00", sum))
	return block
}

func field(text string, size int) []byte {
	result := make([]byte, size)
	at := 0
	for _, character := range text {
		if at == size {
			break
		}
		result[at] = '?'
		if character < utf8.RuneSelf {
			result[at] = byte(character)
		}
		at++
	}
	return result
}

func (b *Writer) fill(block int64) error {
	if surplus := b.size % block; surplus > 0 {
		return b.write(make([]byte, block-surplus))
	}
	return nil
}

func (b *Writer) write(data []byte) error {
	_, _ = b.hash.Write(data)
	b.size += int64(len(data))
	_, err := b.target.Write(data)
	return err
}
