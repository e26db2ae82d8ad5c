package outcome

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	maxLosses = 20
	// lossesBytes are those of the named losses in a message: with them it stays below usageRoom.
	lossesBytes = 1000
	// lossCharacters of a path are named: of a longer one its beginning and its end.
	lossCharacters = 60
)

// Loss is an entry of a workspace, or a property of one, that is not handed on, and why. Its path is
// escaped: it holds no control character and no byte that is not text.
type Loss struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// Losses count the entries that are not handed on, and name the first losses.
type Losses struct {
	Entries int64
	Named   []Loss
	size    int
}

// Drop counts an entry that is not handed on, and names it.
func (l *Losses) Drop(path, reason string) {
	l.Entries++
	l.Name(path, reason)
}

// Name names a loss where a message has room for it.
func (l *Losses) Name(path, reason string) {
	if len(l.Named) == maxLosses {
		return
	}
	loss := Loss{shortened(escaped(path)), reason}
	text, err := json.Marshal(loss)
	size := max(len(text), len(loss.ASCIIJSON()))
	if err != nil || l.size+size > lossesBytes {
		return
	}
	l.size += size
	l.Named = append(l.Named, loss)
}

// ASCIIJSON is the loss as the courier's message has it.
func (l Loss) ASCIIJSON() string {
	return `{"path":` + ASCIIJSON(l.Path) + `,"reason":` + ASCIIJSON(l.Reason) + "}"
}

// ASCIIJSON is a text as JSON in which every character but plain ASCII is an escape.
func ASCIIJSON(text string) string {
	short := map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\f': `\f`, '\b': `\b`}
	var result strings.Builder
	result.WriteByte('"')
	for _, character := range text {
		escape, isShort := short[character]
		switch {
		case isShort:
			result.WriteString(escape)
		case character >= ' ' && character <= '~':
			result.WriteRune(character)
		case character > 0xffff:
			high, low := utf16.EncodeRune(character)
			fmt.Fprintf(&result, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&result, `\u%04x`, character)
		}
	}
	result.WriteByte('"')
	return result.String()
}

func escaped(text string) string {
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

func shortened(text string) string {
	if utf8.RuneCountInString(text) <= lossCharacters {
		return text
	}
	characters := []rune(text)
	half := lossCharacters / 2
	return string(characters[:half]) + "…" + string(characters[len(characters)-half:])
}
