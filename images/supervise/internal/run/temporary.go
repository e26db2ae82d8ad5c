package run

import (
	"errors"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/untrusted"
)

const (
	stickyMode  = 0o1777
	privateMode = 0o700

	temporaryVariable = "TMPDIR"
	privateFolder     = "securebench-own"
)

// ownTemporary gives the folder for temporary files its usual mode. It is an emptyDir, open to everybody
// without the sticky bit, which some runtimes refuse. Where it belongs to somebody else, commands get
// a folder of their own in it by TMPDIR, unless the image or the tester has set that.
func ownTemporary(name string) error {
	if name == "" {
		return nil
	}
	folder, err := untrusted.OpenFolder(name)
	if err != nil {
		return err
	}
	defer folder.Close()
	err = unix.Fchmod(int(folder.Fd()), stickyMode)
	if _, given := os.LookupEnv(temporaryVariable); err == nil || given {
		return nil
	}
	if !errors.Is(err, unix.EPERM) {
		return &os.PathError{Op: "chmod", Path: name, Err: err}
	}
	if err := unix.Mkdirat(int(folder.Fd()), privateFolder, privateMode); err != nil {
		return &os.PathError{Op: "mkdir", Path: privateFolder, Err: err}
	}
	return os.Setenv(temporaryVariable, path.Join(name, privateFolder))
}
