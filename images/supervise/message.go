package main

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// messageBytes is what the kubelet keeps of a termination message.
const messageBytes = 4096

var errStopped = errors.New("told to stop")

// message is the termination message: evidence beside the exit code.
type message struct {
	V               int     `json:"v"`
	Code            int     `json:"code"`
	Phase           string  `json:"phase"`
	ExitCode        int     `json:"exit_code"`
	Signal          int     `json:"signal"`
	TimedOut        bool    `json:"timed_out"`
	DurationSeconds float64 `json:"duration_seconds"`
	StdoutBytes     int64   `json:"stdout_bytes"`
	StderrBytes     int64   `json:"stderr_bytes"`
	Error           string  `json:"error"`
	// Unstarted: the command does not exist or cannot be executed; Error says which.
	Unstarted bool `json:"unstarted,omitempty"`
	// MemoryKills are the processes that were killed at the memory limit while the phases ran.
	MemoryKills int `json:"memory_kills,omitempty"`
	usage
	Commit string      `json:"commit,omitempty"`
	Diff   *diffReport `json:"diff,omitempty"`
}

// failure is the message of a job that ended before or beside its phases.
func failure(code int, err error) message {
	result := message{V: 1, Code: code, Error: err.Error()}
	var ofCandidate candidateError
	if errors.As(err, &ofCandidate) {
		result.Phase = phaseCandidate
	}
	return result
}

// encode returns the message as JSON of at most messageBytes; only the error text is cut.
func (m message) encode() []byte {
	m.Error = strings.ToValidUTF8(m.Error, "\uFFFD")
	for {
		text, err := json.Marshal(m)
		if err == nil && len(text) <= messageBytes {
			return text
		}
		if err != nil || m.Error == "" {
			return []byte(`{"v":1,"code":92,"error":"message not encodable"}`)
		}
		m.Error = cut(m.Error, len(m.Error)/2)
	}
}

// cut returns at most limit bytes of text without splitting a character.
func cut(text string, limit int) string {
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// seconds rounds a duration to milliseconds.
func seconds(duration time.Duration) float64 {
	return math.Round(duration.Seconds()*1000) / 1000
}
