// Code generated from operator/securebench/protocol. DO NOT EDIT.

package specs

// Copy: copy: the same as a job of its own.
type Copy struct {
	// Version of the protocol.
	Version int `json:"version"`
	// Source: Absolute folder.
	Source string `json:"source" is:"absolute"`
	// To: Absolute folder that gets a copy of each entry.
	To string `json:"to" is:"absolute"`
}

// Run: run: stages inputs, runs phases, and keeps what the last one said.
type Run struct {
	// Version of the protocol.
	Version int `json:"version"`
	// Streams: What is kept of the last phase.
	Streams Streams `json:"streams"`
	// Temporary: Absolute folder for everybody's temporary files, or empty.
	Temporary string `json:"temporary" is:"absolute or empty"`
	// Probes: host:port of each address that must be closed.
	Probes []string `json:"probes"`
	// ProbeTimeoutSeconds: How long that is waited for.
	ProbeTimeoutSeconds float64 `json:"probe_timeout_seconds"`
	// MaxProcesses: Most processes of the user; 0 for no limit.
	MaxProcesses uint64 `json:"max_processes"`
	// Verdict: Whether the last phase's exit code is the verdict.
	Verdict bool `json:"verdict,omitempty"`
	// Lanes: Compared with their digests first.
	Lanes []DigestedPath `json:"lanes,omitempty"`
	// Candidate: Unpacked before the phases, or None.
	Candidate *Candidate `json:"candidate,omitempty"`
	// Copies: Made after that.
	Copies []Transfer `json:"copies,omitempty"`
	// Protected: Absolute mount points, into which nothing is staged.
	Protected []string `json:"protected,omitempty" is:"absolute"`
	// Home: Absolute home of the phases, or empty for the image's.
	Home string `json:"home,omitempty" is:"absolute or empty"`
	// Repository: The checkout that is checked; there is one phase then.
	Repository *Repository `json:"repository,omitempty"`
	// Prechecks: What examines the pack's own part before the candidate is there.
	Prechecks []Phase `json:"prechecks,omitempty"`
	// Phases: Run one after the other; at least one.
	Phases []Phase `json:"phases,omitempty"`
	// Holds: Absolute folder on which a lock is held to the end, or empty.
	Holds string `json:"holds,omitempty" is:"absolute or empty"`
	// Needs: Absolute path of a file that another container makes before the candidate is brought and the phases begin, or empty.
	Needs string `json:"needs,omitempty" is:"absolute or empty"`
	// NeedsSeconds: How long that is waited for; 0 without a file.
	NeedsSeconds float64 `json:"needs_seconds,omitempty"`
	// Linger: Whether the program stays until it gets a signal to stop.
	Linger bool `json:"linger,omitempty"`
	// Once: Absolute folder that the first start removes, or empty; later ones run nothing.
	Once string `json:"once,omitempty" is:"absolute or empty"`
	// Serves: The folder that the container which this one serves holds, or empty.
	Serves string `json:"serves,omitempty" is:"absolute or empty"`
	// OpenModes: Absolute folders that everybody may read in the end.
	OpenModes []string `json:"open_modes,omitempty" is:"absolute"`
	// Awaits: host:port of each sidecar that must accept connections first.
	Awaits []string `json:"awaits,omitempty"`
	// Diff: The checkout whose changes are kept, or None.
	Diff *Diff `json:"diff,omitempty"`
	// User: Whom this process becomes when everything is staged, a name of the image or a number; empty: it stays who it is.
	User string `json:"user,omitempty"`
	// Root: How the changes of the root file system are kept, or None.
	Root *Root `json:"root,omitempty"`
	// Changes: Changes of a root file system that are made before the phases, or None.
	Changes *RootChanges `json:"changes,omitempty"`
	// Reward: The reward that is kept, or None.
	Reward *Reward `json:"reward,omitempty"`
}

// Streams: How much of the last phase's output is kept.
type Streams struct {
	// Folder: Absolute folder for it, or empty: nothing is kept.
	Folder string `json:"folder" is:"absolute or empty"`
	// HeadBytes: Most bytes of the beginning of each stream.
	HeadBytes int `json:"head_bytes"`
	// TailBytes: Most bytes of the end of each stream that is longer.
	TailBytes int `json:"tail_bytes"`
}

// DigestedPath: A file or folder that is compared with its digest before anything reads it.
type DigestedPath struct {
	// Path: Absolute, in the container.
	Path string `json:"path" is:"absolute"`
	// Digest: sha256:…, of a folder the tree digest.
	Digest string `json:"digest"`
}

// Candidate: A sealed workspace that is unpacked before the phases.
type Candidate struct {
	// Path: Absolute, in the container.
	Path string `json:"path" is:"absolute"`
	// Digest: sha256:…, of a folder the tree digest.
	Digest string `json:"digest"`
	// To: Absolute folder for what it holds.
	To string `json:"to" is:"absolute"`
}

// Transfer: A folder whose content is copied into another one, before the phases.
type Transfer struct {
	// Source: Absolute folder.
	Source string `json:"source" is:"absolute"`
	// To: Absolute folder that gets a copy of each entry.
	To string `json:"to" is:"absolute"`
}

// Repository: How the image's repository is made ready before the phase that checks it.
type Repository struct {
	// Workdir: Absolute folder of the checkout.
	Workdir string `json:"workdir"`
	// Scratch: Absolute folder for a git directory of supervise's own.
	Scratch string `json:"scratch" is:"absolute"`
	// BaseCommit: Full hash, to which the checkout must be.
	BaseCommit string `json:"base_commit"`
	// TimeoutSeconds: Time limit of each step.
	TimeoutSeconds float64 `json:"timeout_seconds"`
	// Candidate: File with the patch of the candidate.
	Candidate DigestedPath `json:"candidate"`
	// Declared: File that says what this patch changes.
	Declared DigestedPath `json:"declared"`
	// SetupPatch: Patch of the author, applied first.
	SetupPatch *PatchField `json:"setup_patch,omitempty"`
	// TestPatch: Patch of the author, applied last.
	TestPatch *PatchField `json:"test_patch,omitempty"`
	// Control: Test that must fail, applied with it.
	Control *PatchField `json:"control,omitempty"`
	// Compile: Precheck to which the tests of test_patch are added.
	Compile *Phase `json:"compile,omitempty"`
}

// PatchField: A patch that is text in a file with an object of JSON.
type PatchField struct {
	// Path: Absolute path of the file.
	Path string `json:"path" is:"absolute"`
	// Field: Its key.
	Field string `json:"field"`
}

// Phase: One command that supervise runs.
type Phase struct {
	// Name: As the termination message has it.
	Name string `json:"name"`
	// Command: The argv.
	Command []string `json:"command"`
	// Workdir: Absolute working folder.
	Workdir string `json:"workdir"`
	// TimeoutSeconds: Time limit, or None.
	TimeoutSeconds *float64 `json:"timeout_seconds,omitempty"`
	// Env: Variables besides those of the image.
	Env map[string]string `json:"env,omitempty"`
	// Script: Whether the command's file is started by its #! line; it needs no mode.
	Script bool `json:"script,omitempty"`
	// Interpreter: Program for a script without such a line, if the image has it; else sh.
	Interpreter string `json:"interpreter,omitempty"`
	// User: User and group; 0 for those of supervise.
	User uint32 `json:"user,omitempty"`
	// Proof: What stderr says when the command ends without proof that it completed; empty for one that gives none.
	Proof string `json:"proof,omitempty"`
	// Search: Folders with programs, looked into after those of the PATH.
	Search []string `json:"search,omitempty" is:"absolute"`
	// Ready: Whether its program must be there before the candidate is.
	Ready bool `json:"ready,omitempty"`
	// Guarded: Whether what the command starts is kept from the memory of its process.
	Guarded bool `json:"guarded,omitempty"`
	// Sources: Text for -c of a script's own Python: it compiles the script before that.
	Sources string `json:"sources,omitempty"`
}

// Diff: How the changes of a checkout become a patch beside the streams.
type Diff struct {
	// Workdir: Absolute folder of the checkout.
	Workdir string `json:"workdir" is:"absolute"`
	// Scratch: Absolute folder for a git directory of supervise's own.
	Scratch string `json:"scratch" is:"absolute"`
	// TimeoutSeconds: Time limit of each step.
	TimeoutSeconds float64 `json:"timeout_seconds"`
	// Bytes: Most bytes of the patch; one more is kept of a longer one.
	Bytes int `json:"bytes"`
}

// Root: How the changes of the root file system become an archive beside the streams.
type Root struct {
	// Excluded: Further absolute paths that are not part of it.
	Excluded []string `json:"excluded" is:"absolute"`
	// Bytes: Most bytes of contents and names.
	Bytes int64 `json:"bytes"`
	// Entries: Most entries, those that are gone too.
	Entries int64 `json:"entries"`
	// Artifacts: What is kept, changed or not; without any the changes are. One may be a mount.
	Artifacts []Artifact `json:"artifacts,omitempty"`
}

// Artifact: A path that is kept as it is in the end, with everything below it.
type Artifact struct {
	// Source: Absolute, or relative to the working folder of the last phase.
	Source string `json:"source"`
	// Exclude: Patterns of tar for what is left out of a folder.
	Exclude []string `json:"exclude,omitempty"`
}

// RootChanges: Sealed changes of a root file system that are made before the phases.
type RootChanges struct {
	// Path: Absolute, in the container.
	Path string `json:"path" is:"absolute"`
	// Digest: sha256:…, of a folder the tree digest.
	Digest string `json:"digest"`
	// Excluded: Absolute paths at and below which nothing is changed.
	Excluded []string `json:"excluded" is:"absolute"`
	// Tools: Names of programs that stay the image's, with what they load. The interpreters of scripts among the phases do so too.
	Tools []string `json:"tools"`
	// User: With whose rights they are made, a name of the image or a number; empty: with those of supervise.
	User string `json:"user,omitempty"`
	// Replaces: Whether a folder that is above all others of the archive is emptied before.
	Replaces bool `json:"replaces,omitempty"`
}

// Reward: Where a script leaves its reward, which is kept beside the streams.
type Reward struct {
	// Folder: Absolute folder.
	Folder string `json:"folder" is:"absolute"`
	// Files: Names in it; the first that is there counts, whatever it is.
	Files []string `json:"files" is:"relative"`
	// Bytes: Most bytes of it.
	Bytes int64 `json:"bytes"`
}

// Courier: courier: seals the candidate of a harness Pod, or keeps what a verifier Pod's check said.
type Courier struct {
	// Version of the protocol.
	Version int `json:"version"`
	// Limits: Bounds of what is kept.
	Limits CandidateBounds `json:"limits"`
	// Seal: What is sealed, or None in a verifier Pod.
	Seal *Seal `json:"seal,omitempty"`
	// Folders: Relative to the courier's root; made at once, in this order, for containers that wait for the last one.
	Folders []string `json:"folders,omitempty" is:"relative"`
}

// CandidateBounds: Bounds in bytes, and of a workspace also in entries.
type CandidateBounds struct {
	// TextBytes: Candidate text or code.
	TextBytes int64 `json:"text_bytes"`
	// PatchBytes: Candidate patch.
	PatchBytes int64 `json:"patch_bytes"`
	// WorkspaceBytes: File contents and names of a candidate workspace, or of the changes of a root file system, together; of a sparse file its parts.
	WorkspaceBytes int64 `json:"workspace_bytes"`
	// WorkspaceFiles: Entries of either: files, folders, links and whatever is dropped, of changes also what is gone.
	WorkspaceFiles int64 `json:"workspace_files"`
	// StreamBytes: Stdout and stderr, each.
	StreamBytes int64 `json:"stream_bytes"`
}

// Seal: How a candidate is sealed.
type Seal struct {
	// Extraction: What is taken.
	Extraction Extraction `json:"extraction"`
	// LimitBytes: Bound of a candidate that is one file of text.
	LimitBytes int64 `json:"limit_bytes"`
	// Exclude: Paths of the workspace that never belong to a candidate.
	Exclude []string `json:"exclude" is:"relative"`
	// Live: Whether the streams are copied while the agent works.
	Live bool `json:"live,omitempty"`
}

// Extraction: What the courier takes.
type Extraction struct {
	// Mode: Source of the candidate.
	Mode string `json:"mode" is:"stdout|file|git_diff|workspace|root_diff|unsupported"`
	// Kind: What the candidate is.
	Kind string `json:"kind"`
	// Path: Workspace-relative file; present exactly for mode file.
	Path *string `json:"path,omitempty" is:"relative"`
}

// Egress: egress-proxy: the sidecar of a harness Pod.
type Egress struct {
	// Version of the protocol.
	Version int `json:"version"`
	// Gateway: Gateway of the run.
	Gateway GatewayAddress `json:"gateway"`
	// Token: Absolute path of the file with the launch's token.
	Token string `json:"token" is:"absolute"`
	// Listen: Port on the loopback by route (protocol.gateway.Route).
	Listen map[string]int `json:"listen"`
	// Connections: Open at once.
	Connections int `json:"connections"`
	// StartSeconds: For reaching the gateway at first.
	StartSeconds float64 `json:"start_seconds"`
	// CloseSeconds: For telling it that the harness has ended.
	CloseSeconds float64 `json:"close_seconds"`
}

// GatewayAddress: Where a run's gateway listens.
type GatewayAddress struct {
	// Host: Numeric: the Pod has no resolver.
	Host string `json:"host"`
	// Port: From 1 to 65535.
	Port int `json:"port"`
}

// Probe: probe: tries targets until their state is sure.
type Probe struct {
	// Version of the protocol.
	Version int `json:"version"`
	// Want: messages.CLOSED for a canary, messages.OPEN for a control.
	Want string `json:"want" is:"open|closed"`
	// TimeoutSeconds: For the answer to one try.
	TimeoutSeconds float64 `json:"timeout_seconds"`
	// QuietSeconds: Silence after which a canary is sure.
	QuietSeconds float64 `json:"quiet_seconds"`
	// LimitSeconds: For everything; more than quiet_seconds.
	LimitSeconds float64 `json:"limit_seconds"`
	// Targets: At least one.
	Targets []Target `json:"targets"`
	// MustOpen: Further ones that a canary must reach.
	MustOpen []Target `json:"must_open,omitempty"`
}

// Target: One address that a canary or a control tries.
type Target struct {
	// Name: Unique among the targets; stands in the condition.
	Name string `json:"name"`
	// Host: Numeric address: the Pods have no resolver.
	Host string `json:"host"`
	// Port: From 1 to 65535.
	Port int `json:"port"`
	// Protocol: tcp (open when a connection is accepted) or udp (a DNS server; open when it answers a query).
	Protocol string `json:"protocol" is:"tcp|udp"`
}
