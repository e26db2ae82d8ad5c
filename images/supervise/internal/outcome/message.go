// Package outcome has what a job leaves behind: exit codes, termination messages and the names of files.
package outcome

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// MessageBytes is what the kubelet keeps of a termination message.
const MessageBytes = 4096

// usageRoom is how long a message may become by what stands in it beside a result: of all messages of a Pod
// the kubelet keeps 12 KiB, an equal part of each container, and no Pod of ours has more than six.
const usageRoom = 2048

// ErrStopped is the end of what was told to stop.
var ErrStopped = errors.New("told to stop")

// Message is the termination message: evidence beside the exit code.
type Message struct {
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
	// Grading is what the command's verdict rests on, where its proof says so.
	Grading string `json:"grading,omitempty"`
	// MemoryKills are the processes that were killed at the memory limit while the phases ran.
	MemoryKills int `json:"memory_kills,omitempty"`
	Usage
	Commit string      `json:"commit,omitempty"`
	Diff   *DiffReport `json:"diff,omitempty"`
	// DroppedEntries are links of the candidate that were not kept; Dropped names the first of them.
	DroppedEntries int64  `json:"dropped_entries,omitempty"`
	Dropped        []Loss `json:"dropped,omitempty"`
}

// Failure is the message of a job that ended before or beside its phases.
func Failure(code int, err error) Message {
	result := Message{V: 1, Code: code, Error: err.Error()}
	var ofCandidate candidateError
	if errors.As(err, &ofCandidate) {
		result.Phase = PhaseCandidate
	}
	return result
}

// Encode returns the message as JSON of at most MessageBytes; only the error text is cut.
func (m Message) Encode() []byte {
	m.Error = strings.ToValidUTF8(m.Error, "\uFFFD")
	for {
		text, err := json.Marshal(m)
		if err == nil && len(text) <= MessageBytes {
			return text
		}
		if err != nil || m.Error == "" {
			return []byte(`{"v":1,"code":92,"error":"message not encodable"}`)
		}
		m.Error = Cut(m.Error, len(m.Error)/2)
	}
}

// Cut returns at most limit bytes of text without splitting a character.
func Cut(text string, limit int) string {
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// Seconds rounds a duration to milliseconds.
func Seconds(duration time.Duration) float64 {
	return math.Round(duration.Seconds()*1000) / 1000
}

// ProbeMessage is the termination message of a canary or a control.
type ProbeMessage struct {
	V       int               `json:"v"`
	Targets map[string]string `json:"targets"`
	Kernel  string            `json:"kernel"`
	// Seconds: of a canary, how long what is closed had been silent, and what must be open as it is; of a
	// control, after how long the last of those that answered did.
	Seconds float64 `json:"seconds"`
}

// PhaseCandidate is the phase of a message whose failure what the agent left may have caused.
const PhaseCandidate = "candidate"

// candidateError is a failure at what a candidate holds: with the same candidate it comes again.
type candidateError struct{ error }

func (e candidateError) Unwrap() error { return e.error }

// CandidateFailure marks an error as one at what the candidate holds.
func CandidateFailure(err error) error { return candidateError{err} }

// KernelRelease is the release of the kernel that this container sees.
func KernelRelease() (string, error) {
	var names unix.Utsname
	if err := unix.Uname(&names); err != nil {
		return "", err
	}
	return unix.ByteSliceToString(names.Release[:]), nil
}

// DiffReport stands in the message. There is a diff if the exit code is 0 and nothing else went wrong;
// without an exit code no program of git is to blame.
type DiffReport struct {
	Baseline string `json:"baseline"`
	Bytes    int    `json:"bytes"`
	ExitCode *int   `json:"exit_code"`
	Stderr   string `json:"stderr"`
}

// Usage is what the container took; a field is zero where no file says it (gVisor, an old kernel).
type Usage struct {
	// MemoryPeakBytes is since the container's start.
	MemoryPeakBytes int `json:"memory_peak_bytes,omitempty"`
	// CPUPeriods are the periods of the CPU limit in which the phases ran; none without a limit.
	CPUPeriods int `json:"cpu_periods,omitempty"`
	// CPUThrottled are those of them in which the limit held the container up.
	CPUThrottled int `json:"cpu_throttled,omitempty"`
}

// WithUsage returns a message, an object of JSON, with what its container took; where the usage is not known or
// has no room the message is as it was.
func WithUsage(message []byte, usage Usage) []byte {
	fields, err := json.Marshal(usage)
	object, isObject := bytes.CutSuffix(message, []byte("}"))
	if err != nil || !isObject || usage == (Usage{}) || len(message)+len(fields) > usageRoom {
		return message
	}
	return slices.Concat(object, []byte(","), fields[1:])
}
