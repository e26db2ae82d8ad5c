package specs

// MaxPatchFile bounds every file that is read into memory: lanes and candidates are smaller.
const MaxPatchFile = 256 << 20

// Repository says how the image's repository is made ready. Everything is read into memory
// before the repository is touched.
type Repository struct {
	Workdir        string      `json:"workdir"`
	Scratch        string      `json:"scratch"`
	BaseCommit     string      `json:"base_commit"`
	TimeoutSeconds float64     `json:"timeout_seconds"`
	Setup          *PatchField `json:"setup_patch"`
	Candidate      File        `json:"candidate"`
	Declared       File        `json:"declared"`
	Test           *PatchField `json:"test_patch"`
	Control        *PatchField `json:"control"`
	// Compile is a precheck that gets the names of the Python tests that the test patch brings.
	Compile *Phase `json:"compile"`
}

// PatchField is a field of a JSON file: a patch, or an object whose key patch is one.
type PatchField struct {
	Path  string `json:"path"`
	Field string `json:"field"`
}

// File is a file that must have a digest.
type File struct {
	Path   string `json:"path"`
	Digest string `json:"digest"`
}

func (s *Repository) paths() []string {
	paths := []string{s.Scratch, s.Candidate.Path, s.Declared.Path}
	for _, patch := range []*PatchField{s.Setup, s.Test, s.Control} {
		if patch != nil {
			paths = append(paths, patch.Path)
		}
	}
	return paths
}

// Diff asks for what the command changed in a repository.
type Diff struct {
	Workdir        string  `json:"workdir"`
	Scratch        string  `json:"scratch"`
	TimeoutSeconds float64 `json:"timeout_seconds"`
	Bytes          int     `json:"bytes"`
}
