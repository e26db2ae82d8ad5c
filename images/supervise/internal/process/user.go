package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// accountBytes of a file of accounts are read.
	accountBytes = 1 << 20

	homeVariable = "HOME"
)

// Files of the image that say who a user is; programs built for tests have other ones.
var (
	passwdFile = "/etc/passwd"
	groupFile  = "/etc/group"
)

// User is whom commands run as.
type User struct {
	uid, gid  int
	groups    []int
	home      string
	usualHome string // of the user that this process has before
}

// FindUser looks a user up in the files of the image, as a container runtime does: a name first, else a
// number, which may be unknown to the image. It must be called before anything of a candidate is there.
func FindUser(wanted string) (User, error) {
	accounts, err := records(passwdFile, 7, 2, 3)
	if err != nil {
		return User{}, err
	}
	number, numeric := account(wanted)
	uid := func(entry []string) int { each, _ := account(entry[2]); return each }
	at := slices.IndexFunc(accounts, func(entry []string) bool { return entry[0] == wanted })
	if at < 0 && numeric {
		at = slices.IndexFunc(accounts, func(entry []string) bool { return uid(entry) == number })
	}
	if at < 0 && !numeric {
		return User{}, fmt.Errorf("the image has no user %q", wanted)
	}
	found, name := User{uid: number, home: "/"}, ""
	if at >= 0 {
		entry := accounts[at]
		name, found.uid = entry[0], uid(entry)
		found.gid, _ = account(entry[3])
		if entry[5] != "" {
			found.home = entry[5]
		}
	}
	if own := slices.IndexFunc(accounts, func(entry []string) bool { return uid(entry) == os.Getuid() }); own >= 0 {
		found.usualHome = accounts[own][5]
	}
	found.groups, err = groupsOf(name, found.gid)
	return found, err
}

func groupsOf(name string, own int) ([]int, error) {
	groups := []int{own}
	entries, err := records(groupFile, 4, 2)
	for _, entry := range entries {
		gid, _ := account(entry[2])
		if name != "" && slices.Contains(strings.Split(entry[3], ","), name) {
			groups = append(groups, gid)
		}
	}
	return groups, err
}

// account reads the number of a user or a group.
func account(text string) (int, bool) {
	number, err := strconv.ParseInt(text, 10, 32)
	return int(number), err == nil && number >= 0 && number <= math.MaxInt32
}

// records are the lines of a file of accounts that have all fields, with numbers where they belong; none
// without the file.
func records(name string, fields int, numbers ...int) ([][]string, error) {
	file, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var found [][]string
	lines := bufio.NewScanner(io.LimitReader(file, accountBytes))
	for lines.Scan() {
		entry := strings.Split(lines.Text(), ":")
		isWrong := func(at int) bool { _, isNumber := account(entry[at]); return !isNumber }
		if len(entry) == fields && !slices.ContainsFunc(numbers, isWrong) {
			found = append(found, entry)
		}
	}
	return found, lines.Err()
}

// Become makes this process and all that it starts this user, for good and without any capability. It
// must be called by the goroutine that starts commands.
func (u User) Become() error {
	if err := syscall.Setgroups(u.groups); err != nil {
		return fmt.Errorf("groups of user %d: %w", u.uid, err)
	}
	if err := syscall.Setresgid(u.gid, u.gid, u.gid); err != nil {
		return fmt.Errorf("group %d: %w", u.gid, err)
	}
	if err := syscall.Setresuid(u.uid, u.uid, u.uid); err != nil {
		return fmt.Errorf("user %d: %w", u.uid, err)
	}
	// Another name of root keeps its capabilities.
	if err := DropCapabilities(); err != nil {
		return err
	}
	if home := os.Getenv(homeVariable); home == "" || home == u.usualHome {
		return os.Setenv(homeVariable, u.home)
	}
	return nil
}

// DropCapabilities makes this process one without any; without new privileges no command gets them back.
func DropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return hide()
}

// hide keeps the memory of this process from others; a change of its user ends that.
func hide() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("dumpable: %w", err)
	}
	return nil
}

// While does a piece of work with the rights of this user, without any capability, and becomes who this process was
// again. No command may run in between.
func (u User) While(work func() error) error {
	if os.Geteuid() == u.uid {
		return work()
	}
	groups, err := syscall.Getgroups()
	if err != nil {
		return err
	}
	user, group := os.Geteuid(), os.Getegid()
	if err = u.borrow(); err == nil {
		err = work()
	}
	// The user first: only then this process may change the rest.
	if back := syscall.Setresuid(-1, user, -1); back != nil {
		return errors.Join(err, fmt.Errorf("user %d again: %w", user, back))
	}
	return errors.Join(err, syscall.Setresgid(-1, group, -1), syscall.Setgroups(groups), hide())
}

// BorrowError says that this process may not have the rights of a user: it does not run as root.
type BorrowError struct {
	uid int
	err error
}

func (e *BorrowError) Error() string {
	return fmt.Sprintf("user %d of the verifier's container may not have the rights of user %d, with which the agent worked (%v): let the verifier run as root",
		os.Geteuid(), e.uid, e.err)
}

func (u User) borrow() error {
	for _, step := range []func() error{
		func() error { return syscall.Setgroups(u.groups) },
		func() error { return syscall.Setresgid(-1, u.gid, -1) },
		func() error { return syscall.Setresuid(-1, u.uid, -1) },
	} {
		if err := step(); err != nil {
			return &BorrowError{u.uid, err}
		}
	}
	return nil
}
