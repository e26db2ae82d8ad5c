package courier

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"unicode/utf8"

	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

// outputs are the captured streams, nil for one that was not captured; a command that was killed with
// supervise may leave less, or junk.
type outputs [2]*output

// output is a captured stream: its first bytes, the last ones of the rest, and its real length. Nothing
// of it is in memory.
type output struct {
	head, tail piece
	total      int64
}

// piece is the beginning of a file, as much of it as counts; without a file it is empty.
type piece struct {
	file *os.File
	kept int64
}

func openOutputs(name string, bounds specs.CandidateBounds) (*outputs, error) {
	folder, err := untrusted.OpenFolder(name)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	report, err := untrusted.ReadRegular(folder, outcome.ReportFile, noteBytes)
	if err != nil && !untrusted.IsUnreadable(err) {
		return nil, err
	}
	limit := max(bounds.TextBytes, bounds.PatchBytes, bounds.StreamBytes)
	var found outputs
	for index, stream := range outcome.StreamNames {
		if found[index], err = openOutput(folder, stream, limit, reportedBytes(report, stream)); err != nil {
			found.close()
			return nil, err
		}
	}
	return &found, nil
}

func openOutput(folder *os.File, name string, limit, reported int64) (*output, error) {
	head, headSize, err := openPiece(folder, name, limit)
	if untrusted.IsUnreadable(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	tail, tailSize, err := openPiece(folder, name+".tail", limit)
	if err != nil && !untrusted.IsUnreadable(err) {
		_ = head.file.Close()
		return nil, err
	}
	written := headSize + min(tailSize, math.MaxInt64-headSize)
	return &output{head, tail, max(reported, written)}, nil
}

func openPiece(folder *os.File, name string, limit int64) (piece, int64, error) {
	file, err := untrusted.OpenRegular(folder, name)
	if err != nil {
		return piece{}, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		_ = file.Close()
		return piece{}, 0, err
	}
	return piece{file, min(info.Size(), limit)}, info.Size(), nil
}

// reportedBytes is the length of a stream as supervise's report has it, or 0 where it says nothing.
func reportedBytes(report []byte, stream string) int64 {
	var values map[string]any
	if specs.Strict(report, &values) != nil {
		return 0
	}
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(report, &fields)
	// What is no whole number is 0 with an error, what is too large is not believed either.
	count, err := strconv.ParseInt(string(fields[stream+"_bytes"]), 10, 64)
	if err != nil {
		return 0
	}
	return count
}

func (o *outputs) close() {
	for _, output := range o {
		if output == nil {
			continue
		}
		_ = output.head.file.Close()
		if output.tail.file != nil {
			_ = output.tail.file.Close()
		}
	}
}

// keep writes both streams as text of bounded size and returns what the message says of them.
func (o *outputs) keep(folder string, limit int64) (string, error) {
	said := ""
	for index, stream := range o {
		if stream == nil {
			stream = &output{}
		}
		truncated := false
		err := untrusted.WriteBuffered(folder, outcome.StreamNames[index], func(target *bufio.Writer) (err error) {
			truncated, err = stream.writeText(target, limit)
			return err
		})
		if err != nil {
			return "", err
		}
		if index > 0 {
			said += ","
		}
		said += fmt.Sprintf(`"%s":{"bytes":%d,"truncated":%t}`, outcome.StreamNames[index], stream.total, truncated)
	}
	return said, nil
}

func (o *output) kept() int64 { return o.head.kept + o.tail.kept }

func (p piece) section(from, to int64) io.Reader {
	if p.file == nil || from >= to {
		return eof{}
	}
	return io.NewSectionReader(p.file, from, to-from)
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// section reads what is kept between two places.
func (o *output) section(from, to int64) io.Reader {
	head := o.head.kept
	return io.MultiReader(
		o.head.section(min(from, head), min(to, head)),
		o.tail.section(max(from, head)-head, max(to, head)-head),
	)
}

// writeText writes the stream as text of about limit bytes, its first and its last half, and reports whether
// something was left out. Cuts never split a character; a line between the halves counts what is missing.
func (o *output) writeText(target *bufio.Writer, limit int64) (bool, error) {
	isWhole := o.kept() == o.total
	if isWhole && o.total <= limit {
		_, err := writeDecoded(target, o.section(0, o.total), true)
		return false, err
	}
	half := limit / 2
	firstBytes, err := writeDecoded(target, o.head.section(0, min(half, o.head.kept)), false)
	if err != nil {
		return true, err
	}
	from := max(0, o.kept()-half)
	if !isWhole {
		from = max(from, o.head.kept)
	}
	if half == 0 {
		from = o.kept()
	}
	continuations, err := o.continuations(from)
	if err != nil {
		return true, err
	}
	from += continuations
	if err := o.endLine(target, firstBytes); err != nil {
		return true, err
	}
	omitted := o.total - firstBytes - (o.kept() - from)
	_, _ = fmt.Fprintf(target, "[securebench: %d of %d bytes omitted]\n", omitted, o.total)
	_, err = writeDecoded(target, o.section(from, o.kept()), true)
	return true, err
}

// continuations counts the bytes at a place that belong to a character which begins before it.
func (o *output) continuations(from int64) (int64, error) {
	data, err := io.ReadAll(o.section(from, min(from+utf8.UTFMax-1, o.kept())))
	count := int64(0)
	for count < int64(len(data)) && !utf8.RuneStart(data[count]) {
		count++
	}
	return count, err
}

// endLine ends the line of a beginning that has so many bytes.
func (o *output) endLine(target *bufio.Writer, size int64) error {
	var last [1]byte
	if size == 0 {
		return nil
	}
	if _, err := o.head.file.ReadAt(last[:], size-1); err != nil {
		return err
	}
	if last[0] != '\n' {
		_ = target.WriteByte('\n')
	}
	return nil
}

// writeDecoded writes text, with U+FFFD for what is not UTF-8, and returns how many bytes were read for it.
// What begins a character at the end belongs to it only where the text is complete.
func writeDecoded(target *bufio.Writer, source io.Reader, isComplete bool) (int64, error) {
	buffer := make([]byte, untrusted.CopyBytes)
	pending, total := 0, int64(0)
	for {
		count, err := source.Read(buffer[pending:])
		if err != nil && !errors.Is(err, io.EOF) {
			return total, err
		}
		isLast := err != nil
		used := decodeText(target, buffer[:pending+count], isLast && isComplete)
		total += int64(used)
		pending = copy(buffer, buffer[used:pending+count])
		if isLast {
			return total, nil
		}
	}
}

func decodeText(target *bufio.Writer, data []byte, isComplete bool) int {
	used := 0
	for used < len(data) {
		rest := data[used:]
		if !isComplete && mayContinue(rest) {
			break
		}
		character, size := utf8.DecodeRune(rest)
		if character == utf8.RuneError && size == 1 {
			size = invalidLength(rest)
		}
		_, _ = target.WriteRune(character)
		used += size
	}
	return used
}

// mayContinue reports whether a text may go on in the middle of what its last bytes begin. Half a surrogate
// is no UTF-8 however it goes on, but operator and courier cut alike, and Python's decoder waits for it.
func mayContinue(rest []byte) bool {
	isHalfSurrogate := len(rest) == 2 && rest[0] == 0xed && rest[1] >= 0xa0 && rest[1] <= 0xbf
	return isHalfSurrogate || !utf8.FullRune(rest)
}

// invalidLength is how much of what is not UTF-8 becomes one U+FFFD: the longest beginning of a character,
// as Unicode recommends.
func invalidLength(data []byte) int {
	low, high, size := byte(0x80), byte(0xbf), 0
	switch first := data[0]; {
	case first < 0xc2 || first > 0xf4:
		return 1
	case first < 0xe0:
		size = 2
	case first < 0xf0:
		size = 3
	default:
		size = 4
	}
	switch data[0] {
	case 0xe0:
		low = 0xa0
	case 0xed:
		high = 0x9f
	case 0xf0:
		low = 0x90
	case 0xf4:
		high = 0x8f
	}
	length := 1
	for length < min(size, len(data)) && data[length] >= low && data[length] <= high {
		low, high = 0x80, 0xbf
		length++
	}
	return length
}
