package specs

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// What a courier captures, and of which kind it is.
const (
	modeSeal    = "seal"
	modeCollect = "collect"

	FromStdout  = "stdout"
	FromFile    = "file"
	FromDiff    = "git_diff"
	FromTree    = "workspace"
	FromNothing = "unsupported"

	kindPatch = "patch"
)

var (
	extractionModes = []string{FromStdout, FromFile, FromDiff, FromTree, FromNothing}
	candidateKinds  = []string{"text", "code", kindPatch, "workspace", "none"}
)

// CourierTask is the specification of the courier. Without an extraction it collects the streams of a check.
type CourierTask struct {
	Bounds     Bounds
	Extraction *Extraction
	Exclude    map[string]bool // paths of the workspace that never belong to a candidate
	Live       bool            // the streams are copied while the agent works
	Folders    []string        // made at once, relative to the volumes, for containers that wait for the last
}

// Bounds are in bytes, and of a workspace also in entries.
type Bounds struct {
	TextBytes, PatchBytes, WorkspaceBytes, WorkspaceFiles, StreamBytes int64
}

type courier struct {
	Version    int         `json:"version"`
	Mode       string      `json:"mode"`
	Extraction *Extraction `json:"extraction"`
	Limits     *limits     `json:"limits"`
	Exclude    []string    `json:"exclude"`
	Live       bool        `json:"live"`
	Folders    []string    `json:"folders"`
}

// Extraction is what a courier takes; Path is there for a file only.
type Extraction struct {
	Mode string  `json:"mode"`
	Path *string `json:"path"`
	Kind string  `json:"kind"`
}

type limits struct {
	TextBytes      int64 `json:"text_bytes"`
	PatchBytes     int64 `json:"patch_bytes"`
	WorkspaceBytes int64 `json:"workspace_bytes"`
	WorkspaceFiles int64 `json:"workspace_files"`
	StreamBytes    int64 `json:"stream_bytes"`
}

// DecodeCourier returns the task of a command line that has exactly this version's form.
func DecodeCourier(text string) (*CourierTask, error) {
	var spec courier
	if err := Decode(text, &spec); err != nil {
		return nil, err
	}
	if hasLoneSurrogate(text) {
		return nil, errors.New("specification: text that is no Unicode")
	}
	if err := spec.requireFields(text); err != nil {
		return nil, fmt.Errorf("specification: %w", err)
	}
	bounds, err := spec.Limits.bounds()
	if err != nil {
		return nil, err
	}
	task := CourierTask{Bounds: bounds, Live: spec.Live}
	if spec.Mode == modeCollect {
		task.Folders = spec.Folders
		return &task, requireAllClean(spec.Folders)
	}
	if err := spec.Extraction.validate(); err != nil {
		return nil, err
	}
	task.Extraction = spec.Extraction
	task.Exclude = make(map[string]bool, len(spec.Exclude))
	for _, name := range spec.Exclude {
		task.Exclude[name] = true
	}
	return &task, requireAllClean(spec.Exclude)
}

// requireFields looks for what is missing; what is unknown has been refused by then.
func (s *courier) requireFields(text string) error {
	fields := map[string][]string{
		modeSeal:    {"version", "mode", "extraction", "limits", "exclude"},
		modeCollect: {"version", "mode", "limits"},
	}
	names, known := fields[s.Mode]
	if s.Version != 1 || !known {
		return errors.New("version or mode is not known")
	}
	var given struct {
		Extraction json.RawMessage `json:"extraction"`
		Limits     json.RawMessage `json:"limits"`
		Live       json.RawMessage `json:"live"`
		Folders    json.RawMessage `json:"folders"`
	}
	if err := json.Unmarshal([]byte(text), &given); err != nil {
		return err
	}
	if s.Mode == modeSeal && given.Live != nil {
		names = append(names, "live")
	}
	if s.Mode == modeCollect && given.Folders != nil {
		names = append(names, "folders")
	}
	limits := []string{"text_bytes", "patch_bytes", "workspace_bytes", "workspace_files", "stream_bytes"}
	err := errors.Join(requireExactly([]byte(text), names), requireExactly(given.Limits, limits))
	if s.Mode == modeSeal {
		err = errors.Join(err, requireExactly(given.Extraction, []string{"mode", "path", "kind"}))
	}
	return err
}

func requireExactly(raw []byte, names []string) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return err
	}
	for _, name := range names {
		if _, given := fields[name]; !given {
			return fmt.Errorf("%s is missing", name)
		}
	}
	if len(fields) != len(names) {
		return errors.New("there are fields that do not belong to the mode")
	}
	return nil
}

func (s *limits) bounds() (Bounds, error) {
	bounds := Bounds{s.TextBytes, s.PatchBytes, s.WorkspaceBytes, s.WorkspaceFiles, s.StreamBytes}
	if min(s.TextBytes, s.PatchBytes, s.WorkspaceBytes, s.WorkspaceFiles, s.StreamBytes) < 0 {
		return bounds, errors.New("specification: limits must be whole numbers from 0")
	}
	return bounds, nil
}

// TextLimit is how large a candidate that is text may be.
func (b Bounds) TextLimit(kind string) int64 {
	if kind == kindPatch {
		return b.PatchBytes
	}
	return b.TextBytes
}

func (s *Extraction) validate() error {
	if !slices.Contains(extractionModes, s.Mode) || !slices.Contains(candidateKinds, s.Kind) {
		return errors.New("specification: extraction names an unknown mode or kind")
	}
	if s.Mode != FromFile {
		return nil
	}
	if s.Path == nil {
		return errors.New("specification: path must be a non-empty string")
	}
	return requireClean(*s.Path)
}

func requireAllClean(names []string) error {
	for _, name := range names {
		if err := requireClean(name); err != nil {
			return err
		}
	}
	return nil
}

func requireClean(name string) error {
	if !IsCleanRelative(name) {
		return fmt.Errorf("specification: %q is not a clean relative path", name)
	}
	return nil
}

// hasLoneSurrogate reports whether JSON text has an escape of half a character: decoders differ in what
// they make of it.
func hasLoneSurrogate(text string) bool {
	for at := strings.IndexByte(text, '\\'); at >= 0 && at+1 < len(text); {
		step := 2
		switch code := surrogateAt(text, at); {
		case code >= 0xdc00:
			return true
		case code >= 0xd800:
			if surrogateAt(text, at+6) < 0xdc00 {
				return true
			}
			step = 12
		}
		next := strings.IndexByte(text[at+step:], '\\')
		if next < 0 {
			return false
		}
		at += step + next
	}
	return false
}

// surrogateAt returns the half of a character whose escape begins at a place, or 0.
func surrogateAt(text string, at int) uint64 {
	if at+6 > len(text) || text[at] != '\\' || text[at+1] != 'u' {
		return 0
	}
	code, err := strconv.ParseUint(text[at+2:at+6], 16, 16)
	if err != nil || code < 0xd800 || code > 0xdfff {
		return 0
	}
	return code
}
