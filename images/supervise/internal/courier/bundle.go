package courier

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
	tarSize   = 1 << 33 // from this size or time on a header has no room for it

	tarFolder   = '5'
	tarLink     = '2'
	tarHardLink = '1'
	tarFile     = '0'
	tarPax      = 'x'
)

// bundle is a tar of form pax whose bytes depend on its entries alone. Nothing is kept of an entry that is in it.
type bundle struct {
	target io.Writer
	hash   hash.Hash
	size   int64
	buffer []byte
}

// tarEntry is one entry: a folder's name ends with a slash.
type tarEntry struct {
	name, link string
	kind       byte
	mode       uint32
	size       int64
	modified   unix.Timespec
	extents    string // of a sparse file, as staging reads them
}

// addFile adds a file and returns the hex SHA-256 of what is carried of it. Of a sparse file these are the
// parts that hold data.
func (b *bundle) addFile(header tarEntry, file *os.File, entry untrusted.TreeEntry) (string, error) {
	parts := entry.Extents
	if parts == nil {
		parts = []untrusted.Extent{{Length: entry.Size}}
	} else {
		header.extents = untrusted.ExtentText(entry.Size, parts)
	}
	header.size = entry.Stored()
	if err := b.begin(header); err != nil {
		return "", err
	}
	if b.buffer == nil {
		b.buffer = make([]byte, untrusted.CopyBytes)
	}
	content := sha256.New()
	_, _ = io.WriteString(content, header.extents)
	for _, part := range parts {
		if err := b.addPart(file, part, content); err != nil {
			return "", err
		}
	}
	if _, err := file.Seek(entry.Size, io.SeekStart); err != nil {
		return "", err
	}
	if count, err := readSome(file, b.buffer[:1]); err != nil || count > 0 {
		return "", errors.Join(err, errChanged)
	}
	return hex.EncodeToString(content.Sum(nil)), b.fill(untrusted.TarBlock)
}

func (b *bundle) addPart(file *os.File, part untrusted.Extent, content hash.Hash) error {
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

func (b *bundle) end() error {
	if err := b.write(make([]byte, 2*untrusted.TarBlock)); err != nil {
		return err
	}
	return b.fill(tarRecord)
}

func (b *bundle) begin(entry tarEntry) error {
	var records []byte
	if !fitsHeader(entry.name) {
		records = append(records, paxRecord("path", entry.name)...)
	}
	if !fitsHeader(entry.link) {
		records = append(records, paxRecord("linkpath", entry.link)...)
	}
	if entry.size >= tarSize {
		records = append(records, paxRecord("size", strconv.FormatInt(entry.size, 10))...)
		entry.size = 0
	}
	if time := entry.modified; time.Nsec != 0 || time.Sec < 0 || time.Sec >= tarSize {
		records = append(records, paxRecord("mtime", paxTime(time))...)
		entry.modified = unix.Timespec{}
	}
	if entry.extents != "" {
		records = append(records, paxRecord(untrusted.ExtentsRecord, entry.extents)...)
	}
	if records != nil {
		extended := tarEntry{name: "././@PaxHeader", kind: tarPax, size: int64(len(records))}
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
func (e tarEntry) header() []byte {
	block := make([]byte, 0, untrusted.TarBlock)
	block = append(block, field(e.name, tarName)...)
	block = fmt.Appendf(block, "%07o\x00%07o\x00%07o\x00%011o\x00%011o\x00", e.mode, 0, 0, e.size, e.modified.Sec)
	checksum := len(block)
	block = append(block, "        "...)
	block = append(block, e.kind)
	block = append(block, field(e.link, tarName)...)
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

func (b *bundle) fill(block int64) error {
	if surplus := b.size % block; surplus > 0 {
		return b.write(make([]byte, block-surplus))
	}
	return nil
}

func (b *bundle) write(data []byte) error {
	_, _ = b.hash.Write(data)
	b.size += int64(len(data))
	_, err := b.target.Write(data)
	return err
}
