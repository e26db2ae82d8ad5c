package courier

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/untrusted"
)

const (
	// livePrefix goes before a stream's name in the name of its copy.
	livePrefix = "live-"
	// liveBytes are copied at most; what comes later is in the task's record.
	liveBytes = 1 << 20

	appendFlags = unix.O_WRONLY | unix.O_APPEND
)

// liveCopy copies what was added to a stream; trouble ends the copying and nothing else. A courier that is
// started again adds nothing: how far the copy has come is not known then.
type liveCopy struct {
	source, name, target string
	flags                int
	inode                uint64
	position             int64
	left                 int64
}

func newLiveCopy(source, name, target string) *liveCopy {
	return &liveCopy{source: source, name: name, target: target, flags: appendFlags | unix.O_CREAT | unix.O_EXCL, left: liveBytes}
}

// step copies what is new, up to the bound.
func (c *liveCopy) step() {
	if c.left == 0 {
		return
	}
	data, err := c.added()
	if err == nil {
		err = c.append(data)
	}
	if err != nil && !untrusted.IsUnreadable(err) {
		c.left = 0
	}
}

func (c *liveCopy) added() ([]byte, error) {
	folder, err := untrusted.OpenFolder(c.source)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	file, err := untrusted.OpenRegular(folder, c.name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var status unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &status); err != nil {
		return nil, err
	}
	if status.Ino != c.inode {
		// The next command of the container has a new file.
		c.inode, c.position = status.Ino, 0
	}
	data, err := io.ReadAll(io.NewSectionReader(file, c.position, c.left))
	c.position += int64(len(data))
	return data, err
}

func (c *liveCopy) append(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	folder, err := untrusted.OpenFolder(c.target)
	if err != nil {
		return err
	}
	defer folder.Close()
	// Opened anew each time: on a network volume others see the bytes when it is closed.
	file, err := untrusted.OpenAt(folder, livePrefix+c.name, c.flags, untrusted.FileMode)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	c.flags = appendFlags
	c.left -= int64(len(data))
	return errors.Join(err, file.Close())
}
