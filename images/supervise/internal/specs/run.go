package specs

import (
	"errors"
	"fmt"
	"strings"

	"securebench.dev/supervise/internal/outcome"
)

const (
	maxPhases    = outcome.CodeStaging - outcome.CodePhase // 64 + n stays below the codes of our own
	maxPhaseName = 64
	maxKeptBytes = 64 << 20 // per stream and part: all of it is held in memory
)

// Copy is the specification of the init container that copies a folder of an image.
type Copy struct {
	Version int    `json:"version"`
	From    string `json:"from"`
	To      string `json:"to"`
}

// Run is the specification of the containers harness, check, verifier and candidate.
type Run struct {
	Version   int        `json:"version"`
	Verdict   bool       `json:"verdict"`
	Lanes     []Lane     `json:"lanes"`
	Candidate *Candidate `json:"candidate"`
	Copies    []Transfer `json:"copies"`
	Protected []string   `json:"protected"`
	Home      string     `json:"home"`
	// Temporary is the folder for everybody's temporary files, or empty: it gets its usual mode, or
	// commands get one of their own in it.
	Temporary string `json:"temporary"`
	// Prechecks examine the trusted inputs before the candidate is there.
	Prechecks           []Phase  `json:"prechecks"`
	Phases              []Phase  `json:"phases"`
	Streams             Streams  `json:"streams"`
	OpenModes           []string `json:"open_modes"`
	Probes              []string `json:"probes"`
	ProbeTimeoutSeconds float64  `json:"probe_timeout_seconds"`
	MaxProcesses        uint64   `json:"max_processes"`
	// Awaits are addresses of sidecars that must accept connections before anything is brought or run.
	Awaits []string `json:"awaits"`
	// Linger keeps the program until it gets a signal to stop: a sidecar that ends is started again.
	Linger bool `json:"linger"`
	// Once is an empty folder of another user that the first start takes away, or empty: a later
	// start runs nothing.
	Once string `json:"once"`
	// Serves is a folder that the container which this one serves holds a lock on, or empty: a stop
	// signal that comes while it is held is not the kubelet's. Holds is that folder over there. Nothing
	// begins before somebody else has made it.
	Serves string `json:"serves"`
	Holds  string `json:"holds"`
	// Needs is a file that another container makes within so many seconds, or empty: the candidate is
	// not brought, and no phase begins, before it is there.
	Needs        string      `json:"needs"`
	NeedsSeconds float64     `json:"needs_seconds"`
	Repository   *Repository `json:"repository"`
	Diff         *Diff       `json:"diff"`
}

// Lane is a folder that must have a tree digest.
type Lane struct {
	Path   string `json:"path"`
	Digest string `json:"digest"`
}

// Candidate is a sealed workspace and where it is unpacked.
type Candidate struct {
	Path   string `json:"path"`
	Digest string `json:"digest"`
	To     string `json:"to"`
}

// Transfer is a folder whose content is copied into another one.
type Transfer struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Phase is a command with its surroundings.
type Phase struct {
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

// Streams says how much of the last phase's output is kept, and where.
type Streams struct {
	Folder    string `json:"folder"`
	HeadBytes int    `json:"head_bytes"`
	TailBytes int    `json:"tail_bytes"`
}

// DecodeRun returns the specification of a run, valid or with an error.
func DecodeRun(text string) (Run, error) {
	var spec Run
	if err := Decode(text, &spec); err != nil {
		return spec, err
	}
	return spec, spec.validate()
}

func (s *Run) validate() error {
	if s.Version != 1 {
		return fmt.Errorf("specification: version %d is not known", s.Version)
	}
	if len(s.Phases) == 0 || len(s.Phases) > maxPhases {
		return fmt.Errorf("specification: %d phases, 1 to %d are possible", len(s.Phases), maxPhases)
	}
	for _, phases := range [][]Phase{s.Prechecks, s.Phases} {
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
	if (s.Needs == "") != (s.NeedsSeconds == 0) || s.NeedsSeconds < 0 {
		return errors.New("specification: needs and needs_seconds, a time above 0, go together")
	}
	if s.Repository != nil && (len(s.Phases) != 1 || !s.Verdict || s.Repository.TimeoutSeconds <= 0) {
		return errors.New("specification: a repository needs one phase, a verdict and a time limit")
	}
	if s.Diff != nil && (s.Streams.Folder == "" || s.Diff.TimeoutSeconds <= 0 || s.Diff.Bytes < 0 || s.Diff.Bytes >= MaxPatchFile) {
		return errors.New("specification: a diff needs a folder for it, a time limit and a bound")
	}
	return Absolute(s.paths())
}

// paths lists every path of the specification that must be absolute.
func (s *Run) paths() []string {
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
	for _, optional := range []string{s.Home, s.Temporary, s.Streams.Folder, s.Once, s.Serves, s.Holds, s.Needs} {
		if optional != "" {
			paths = append(paths, optional)
		}
	}
	return paths
}

func (p *Phase) validate() error {
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
