package outcome

// ReportFile is the message once more, beside the streams.
const ReportFile = "report.json"

// ChangedFile says which paths really changed when they are not the declared ones. No candidate
// code has run by then, so the operator may believe it.
const ChangedFile = "changed.json"

// ModesFile has the modes that entries of the workspace had before they were made readable, beside the streams.
const ModesFile = "modes"

// DiffFile is where the courier finds the diff, beside the streams. It is untrusted text.
const DiffFile = "diff"

// RootFile has what the command changed in the root file system, beside the streams; RootNote says in its place which
// bound that exceeds. Both are untrusted.
const (
	RootFile = "root.tar"
	RootNote = "root.note"
)

// RewardFile is what a script left as its reward, with its name or with what is wrong with it, beside the streams.
const RewardFile = "reward"

// StreamNames are the streams of a command, and the files that keep them.
var StreamNames = [2]string{"stdout", "stderr"}
