package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"reflect"
	"strings"
	"unicode/utf8"
)

const (
	maxPhases    = codeStaging - codePhase // 64 + n stays below the codes of our own
	maxPhaseName = 64
	maxKeptBytes = 64 << 20 // per stream and part: all of it is held in memory
)

type copySpec struct {
	Version int    `json:"version"`
	From    string `json:"from"`
	To      string `json:"to"`
}

type runSpec struct {
	Version   int            `json:"version"`
	Verdict   bool           `json:"verdict"`
	Lanes     []laneSpec     `json:"lanes"`
	Candidate *candidateSpec `json:"candidate"`
	Copies    []transferSpec `json:"copies"`
	Protected []string       `json:"protected"`
	Home      string         `json:"home"`
	// Temporary is the folder for everybody's temporary files, or empty: it gets its usual mode, or
	// commands get one of their own in it.
	Temporary string `json:"temporary"`
	// Prechecks examine the trusted inputs before the candidate is there.
	Prechecks           []phaseSpec `json:"prechecks"`
	Phases              []phaseSpec `json:"phases"`
	Streams             streamsSpec `json:"streams"`
	OpenModes           []string    `json:"open_modes"`
	Probes              []string    `json:"probes"`
	ProbeTimeoutSeconds float64     `json:"probe_timeout_seconds"`
	MaxProcesses        uint64      `json:"max_processes"`
	// Awaits are addresses of sidecars that must accept connections before anything is brought or run.
	Awaits []string `json:"awaits"`
	// Linger keeps the program until it is told to stop: a sidecar that ends is started again.
	Linger bool `json:"linger"`
	// Once is an empty folder of another user that the first start takes away, or empty: a later
	// start runs nothing.
	Once string `json:"once"`
	// Serves is a folder that the container which this one serves holds a lock on, or empty: a stop
	// signal that comes while it is held is not the kubelet's. Holds is that folder over there. Nothing
	// begins before somebody else has made it.
	Serves     string          `json:"serves"`
	Holds      string          `json:"holds"`
	Repository *repositorySpec `json:"repository"`
	Diff       *diffSpec       `json:"diff"`
}

type laneSpec struct {
	Path   string `json:"path"`
	Digest string `json:"digest"`
}

type candidateSpec struct {
	Path   string `json:"path"`
	Digest string `json:"digest"`
	To     string `json:"to"`
}

type transferSpec struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type phaseSpec struct {
	Name           string            `json:"name"`
	Command        []string          `json:"command"`
	Workdir        string            `json:"workdir"`
	TimeoutSeconds *float64          `json:"timeout_seconds"`
	Env            map[string]string `json:"env"`
	Script         bool              `json:"script"` // the command's file is started by its #! line
	// User and group of the command; 0 for our own. Only root with some capabilities becomes another.
	User uint32 `json:"user"`
	// Search are folders that programs are looked for in after those of the PATH.
	Search []string `json:"search"`
	// Proof is what stderr gets when the command ends without giving its secret back; empty for a
	// command that gets none.
	Proof string `json:"proof"`
	// Ready means that the command's program must be there before the candidate is.
	Ready bool `json:"ready"`
	// Guarded keeps what the command starts from reading and changing the memory of its process.
	Guarded bool `json:"guarded"`
	// Sources is a program for the option -c of a script's Python that compiles the script before
	// the candidate is there; empty for none.
	Sources string `json:"sources"`
}

type streamsSpec struct {
	Folder    string `json:"folder"`
	HeadBytes int    `json:"head_bytes"`
	TailBytes int    `json:"tail_bytes"`
}

// decode reads one JSON object strictly: exact field names, no duplicates, no nulls where a
// value belongs, nothing after the object.
func decode(text string, target any) error {
	if !utf8.ValidString(text) {
		return errors.New("specification is not UTF-8")
	}
	raw := []byte(text)
	if err := checkDuplicates(json.NewDecoder(bytes.NewReader(raw))); err != nil {
		return fmt.Errorf("specification: %w", err)
	}
	if err := checkNames(raw, reflect.TypeOf(target).Elem(), ""); err != nil {
		return fmt.Errorf("specification: %w", err)
	}
	if err := json.Unmarshal(raw, target); err != nil {
		return fmt.Errorf("specification: %w", err)
	}
	return nil
}

// strict reads a JSON object that somebody else may have written: what decoders could see differently is
// an error.
func strict(raw []byte, target any) error {
	if !utf8.Valid(raw) || hasLoneSurrogate(string(raw)) {
		return errors.New("not Unicode")
	}
	if err := checkDuplicates(json.NewDecoder(bytes.NewReader(raw))); err != nil {
		return err
	}
	return json.Unmarshal(raw, target)
}

// checkDuplicates reads one value and requires that nothing follows it.
func checkDuplicates(decoder *json.Decoder) error {
	decoder.UseNumber()
	if err := checkValue(decoder); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("bytes after the object")
	}
	return nil
}

func checkValue(decoder *json.Decoder) error {
	token, err := decoder.Token()
	if err != nil {
		return err
	}
	delim, composite := token.(json.Delim)
	if !composite {
		return nil
	}
	seen := map[string]bool{}
	for decoder.More() {
		if delim == '{' {
			key, err := decoder.Token()
			if err != nil {
				return err
			}
			name, _ := key.(string)
			if seen[name] {
				return fmt.Errorf("duplicate key %q", name)
			}
			seen[name] = true
		}
		if err := checkValue(decoder); err != nil {
			return err
		}
	}
	_, err = decoder.Token()
	return err
}

// checkNames compares the keys with the fields exactly; encoding/json ignores case.
func checkNames(raw json.RawMessage, kind reflect.Type, place string) error {
	if kind.Kind() == reflect.Pointer {
		if string(raw) == "null" {
			return nil
		}
		kind = kind.Elem()
	}
	if string(raw) == "null" {
		return fmt.Errorf("%s is null", strings.TrimPrefix(place, "."))
	}
	switch kind.Kind() {
	case reflect.Struct:
		return checkFields(raw, kind, place)
	case reflect.Slice:
		var items []json.RawMessage
		if err := json.Unmarshal(raw, &items); err != nil {
			return err
		}
		for index, item := range items {
			if err := checkNames(item, kind.Elem(), fmt.Sprintf("%s[%d]", place, index)); err != nil {
				return err
			}
		}
	case reflect.Map:
		var entries map[string]json.RawMessage
		if err := json.Unmarshal(raw, &entries); err != nil {
			return err
		}
		for key, entry := range entries {
			if err := checkNames(entry, kind.Elem(), place+"."+key); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkFields(raw json.RawMessage, kind reflect.Type, place string) error {
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(raw, &entries); err != nil {
		return err
	}
	fields := map[string]reflect.Type{}
	for index := range kind.NumField() {
		field := kind.Field(index)
		fields[field.Tag.Get("json")] = field.Type
	}
	for key, entry := range entries {
		fieldType, known := fields[key]
		if !known {
			return fmt.Errorf("unknown field %s", strings.TrimPrefix(place+"."+key, "."))
		}
		if err := checkNames(entry, fieldType, place+"."+key); err != nil {
			return err
		}
	}
	return nil
}

func decodeRun(text string) (runSpec, error) {
	var spec runSpec
	if err := decode(text, &spec); err != nil {
		return spec, err
	}
	return spec, spec.validate()
}

func (s *runSpec) validate() error {
	if s.Version != 1 {
		return fmt.Errorf("specification: version %d is not known", s.Version)
	}
	if len(s.Phases) == 0 || len(s.Phases) > maxPhases {
		return fmt.Errorf("specification: %d phases, 1 to %d are possible", len(s.Phases), maxPhases)
	}
	for _, phases := range [][]phaseSpec{s.Prechecks, s.Phases} {
		for index := range phases {
			if err := phases[index].validate(); err != nil {
				return err
			}
		}
	}
	streams := s.Streams
	if min(streams.HeadBytes, streams.TailBytes) < 0 || max(streams.HeadBytes, streams.TailBytes) > maxKeptBytes {
		return fmt.Errorf("specification: streams keep 0 to %d bytes", maxKeptBytes)
	}
	if s.ProbeTimeoutSeconds < 0 {
		return errors.New("specification: probe_timeout_seconds is negative")
	}
	if s.Repository != nil && (len(s.Phases) != 1 || !s.Verdict || s.Repository.TimeoutSeconds <= 0) {
		return errors.New("specification: a repository needs one phase, a verdict and a time limit")
	}
	if s.Diff != nil && (s.Streams.Folder == "" || s.Diff.TimeoutSeconds <= 0 || s.Diff.Bytes < 0 || s.Diff.Bytes >= maxPatchFile) {
		return errors.New("specification: a diff needs a folder for it, a time limit and a bound")
	}
	return absolute(s.paths())
}

// paths lists every path of the specification that must be absolute.
func (s *runSpec) paths() []string {
	paths := append(append([]string{}, s.Protected...), s.OpenModes...)
	for _, lane := range s.Lanes {
		paths = append(paths, lane.Path)
	}
	for _, phase := range s.Phases {
		paths = append(paths, phase.Search...)
	}
	for _, transfer := range s.Copies {
		paths = append(paths, transfer.From, transfer.To)
	}
	if s.Candidate != nil {
		paths = append(paths, s.Candidate.Path, s.Candidate.To)
	}
	if s.Diff != nil {
		paths = append(paths, s.Diff.Workdir, s.Diff.Scratch)
	}
	if s.Repository != nil {
		paths = append(paths, s.Repository.paths()...)
	}
	for _, optional := range []string{s.Home, s.Temporary, s.Streams.Folder, s.Once, s.Serves, s.Holds} {
		if optional != "" {
			paths = append(paths, optional)
		}
	}
	return paths
}

func absolute(paths []string) error {
	for _, name := range paths {
		if !path.IsAbs(name) || path.Clean(name) != name {
			return fmt.Errorf("specification: %q is not a clean absolute path", name)
		}
	}
	return nil
}

func (p *phaseSpec) validate() error {
	if p.Name == "" || len(p.Name) > maxPhaseName {
		return fmt.Errorf("specification: a phase needs a name of at most %d bytes", maxPhaseName)
	}
	if len(p.Command) == 0 || p.Command[0] == "" {
		return fmt.Errorf("specification: phase %s has no command", p.Name)
	}
	if p.TimeoutSeconds != nil && *p.TimeoutSeconds <= 0 {
		return fmt.Errorf("specification: time limit of phase %s is not above 0", p.Name)
	}
	for name, value := range p.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return fmt.Errorf("specification: phase %s has an impossible variable %q", p.Name, name)
		}
	}
	for _, word := range append([]string{p.Workdir}, p.Command...) {
		if strings.Contains(word, "\x00") {
			return fmt.Errorf("specification: phase %s has a NUL byte in its command", p.Name)
		}
	}
	return nil
}
