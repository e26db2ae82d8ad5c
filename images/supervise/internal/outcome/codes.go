package outcome

// CodeStorage is that of a courier that a disk failed, not what untrusted code left (EX_IOERR); its message says how.
const CodeStorage = 74

// Exit codes: the whole verdict channel. Every other code is never a pass.
const (
	CodeDone     = 0
	CodeFailed   = 1
	CodePhase    = 64 // plus the number of the phase that failed before the last
	CodeStaging  = 90
	CodeStopped  = 91 // by a signal of its own container, or of an unknown sender
	CodeOwnFault = 92
	CodeNetwork  = 93
	CodeTampered = 94 // the checks succeeded although a test was added that must fail; told to stop from inside
	CodeUnfit    = 95 // what decides cannot work, found before the candidate was there
	CodeHalted   = 96 // told to stop by a signal from outside the container
	CodeTimeout  = 124
)

// IsStopped reports whether a code is that of what was told to stop, by whomever.
func IsStopped(code int) bool { return code == CodeStopped || code == CodeHalted }
