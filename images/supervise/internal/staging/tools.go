package staging

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/untrusted"
)

const (
	// defaultSearch is where the kernel's caller looks for programs without a PATH.
	defaultSearch = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

	loaderCache = "/etc/ld.so.cache"
	// cacheBytes is far above the size of any image's list of libraries.
	cacheBytes = 16 << 20
	// cacheNames bounds what a list says, which may name the same bytes again and again.
	cacheNames = 32 << 20
	// maxToolFiles bounds what all tools load together.
	maxToolFiles = 1000

	firstLine = 256
)

// toolFiles are never the candidate's: by them any program of the image would load what a file names.
var toolFiles = []string{"/etc/ld.so.preload", "/etc/nsswitch.conf"}

// librarySearch is where the loaders of common distributions look last.
var librarySearch = []string{
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
	"/lib64", "/usr/lib64", "/lib", "/usr/local/lib", "/usr/lib",
}

// toolSet are programs of the image with everything that they load before their own code runs: interpreters, loaders
// and libraries. A path that is looked at on the way and that is not there has to stay so.
type toolSet struct {
	names    []string
	search   []string
	guarded  map[string]bool
	files    map[string]untrusted.Inode // by the path behind all links
	wanted   map[string]bool            // names of libraries
	cache    []byte
	listed   map[string][]string
	hasCache bool
}

// findTools finds programs by their names, as a shell does, or scripts by their paths, before anything of a candidate is there. One that the
// image lacks has to stay lacking.
func findTools(names []string) (*toolSet, error) {
	variable, given := os.LookupEnv("PATH")
	if !given {
		variable = defaultSearch
	}
	t := &toolSet{names: names, guarded: map[string]bool{}, files: map[string]untrusted.Inode{}, wanted: map[string]bool{}}
	for _, folder := range strings.Split(variable, ":") {
		if path.IsAbs(folder) {
			t.search = append(t.search, path.Clean(folder))
		}
	}
	if len(names) == 0 {
		return t, nil
	}
	for _, name := range toolFiles {
		t.guarded[name] = true
	}
	var err error
	if t.cache, t.listed, t.hasCache, err = readCache(); err != nil {
		// What the image has cannot be compared with anything else.
		t.guarded[loaderCache] = true
	}
	for _, name := range names {
		t.program(name)
	}
	for _, name := range nameServices() {
		t.library(name, nil)
	}
	if len(t.files) > maxToolFiles {
		return nil, errors.New("the tools of the check load too many files")
	}
	return t, nil
}

func (t *toolSet) paths() []string { return slices.Sorted(maps.Keys(t.guarded)) }

// program guards what a shell starts by a name, and what scripts name in full.
func (t *toolSet) program(name string) {
	if path.IsAbs(name) {
		t.file(path.Clean(name))
		return
	}
	for _, folder := range t.search {
		if t.file(path.Join(folder, name)) {
			break
		}
	}
	for _, folder := range []string{"/bin", "/usr/bin"} {
		t.file(path.Join(folder, name))
	}
}

// file guards a file, the links on the way to it and what it loads; false where there is none.
func (t *toolSet) file(name string) bool {
	real, status, isThere := t.follow(name)
	if !isThere || untrusted.KindOf(status) != unix.S_IFREG {
		return false
	}
	if _, isKnown := t.files[real]; isKnown || len(t.files) > maxToolFiles {
		return true
	}
	t.files[real] = untrusted.Inode{Device: status.Dev, Number: status.Ino}
	file, err := os.Open(real)
	if err != nil {
		return true
	}
	defer file.Close()
	if program, err := elf.NewFile(file); err == nil {
		t.loads(real, program)
	} else {
		t.script(file)
	}
	return true
}

// script guards the interpreter of a #! line, and the program that env starts for it.
func (t *toolSet) script(file *os.File) {
	head := make([]byte, firstLine)
	count, _ := file.ReadAt(head, 0)
	line, isScript := bytes.CutPrefix(head[:count], []byte("#!"))
	if !isScript {
		return
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	words := strings.Fields(string(line))
	if len(words) == 0 || !path.IsAbs(words[0]) {
		return
	}
	t.file(path.Clean(words[0]))
	if path.Base(words[0]) == "env" && len(words) > 1 {
		t.program(words[len(words)-1])
	}
}

// follow goes to a file as the kernel does and guards each link on the way, and where the way ends.
func (t *toolSet) follow(name string) (string, unix.Stat_t, bool) {
	at, pending, followed := "/", strings.Split(name, "/"), 0
	var status unix.Stat_t
	for len(pending) > 0 {
		part := pending[0]
		pending = pending[1:]
		if part == "" || part == "." {
			continue
		}
		if part == ".." {
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		if unix.Lstat(next, &status) != nil {
			t.guarded[path.Join(next, path.Join(pending...))] = true
			return "", status, false
		}
		if untrusted.KindOf(status) != unix.S_IFLNK {
			at = next
			continue
		}
		t.guarded[next] = true
		target, err := os.Readlink(next)
		if followed++; err != nil || followed > maxFollowed {
			return "", status, false
		}
		if path.IsAbs(target) {
			at = "/"
		}
		pending = append(strings.Split(target, "/"), pending...)
	}
	t.guarded[at] = true
	return at, status, true
}

// loads guards the loader and the libraries of a program or library.
func (t *toolSet) loads(name string, file *elf.File) {
	for _, segment := range file.Progs {
		if segment.Type != elf.PT_INTERP || segment.Filesz > unix.PathMax {
			continue
		}
		text := make([]byte, segment.Filesz)
		if _, err := segment.ReadAt(text, 0); err == nil {
			loader := strings.TrimRight(string(text), "\x00")
			t.file(path.Clean(loader))
			if machine, isMusl := strings.CutPrefix(path.Base(loader), "ld-musl-"); isMusl {
				t.guarded["/etc/ld-musl-"+strings.TrimSuffix(machine, ".so.1")+".path"] = true
			}
		}
	}
	var own []string
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		found, _ := file.DynString(tag)
		for _, each := range found {
			for _, folder := range strings.Split(each, ":") {
				folder = strings.NewReplacer("${ORIGIN}", path.Dir(name), "$ORIGIN", path.Dir(name)).Replace(folder)
				if path.IsAbs(folder) {
					own = append(own, path.Clean(folder))
				}
			}
		}
	}
	libraries, _ := file.ImportedLibraries()
	for _, library := range libraries {
		t.library(library, own)
	}
}

// library guards a library where the loader finds it, and the places where it looks before.
func (t *toolSet) library(name string, own []string) {
	if strings.Contains(name, "/") {
		t.file(path.Clean(name))
		return
	}
	t.wanted[name] = true
	for _, folder := range slices.Concat(own, absolute(os.Getenv("LD_LIBRARY_PATH"))) {
		if t.file(path.Join(folder, name)) {
			return
		}
	}
	if values := t.listed[name]; len(values) > 0 {
		for _, each := range values {
			t.file(path.Clean(each))
		}
		return
	}
	for _, folder := range librarySearch {
		if _, err := os.Stat(folder); err != nil {
			continue
		}
		t.guarded[path.Join(folder, "glibc-hwcaps")] = true
		if t.file(path.Join(folder, name)) {
			return
		}
	}
}

func absolute(list string) []string {
	var folders []string
	for _, folder := range strings.FieldsFunc(list, func(character rune) bool { return character == ':' || character == ';' }) {
		if path.IsAbs(folder) {
			folders = append(folders, path.Clean(folder))
		}
	}
	return folders
}

var serviceWord = regexp.MustCompile(`[a-z_]+`)

// nameServices are libraries that any program loads to look up users and hosts, as the image configures it.
func nameServices() []string {
	text, err := os.ReadFile("/etc/nsswitch.conf")
	if err != nil {
		return nil
	}
	var names []string
	for _, line := range strings.Split(string(text), "\n") {
		line, _, _ = strings.Cut(line, "#")
		_, services, _ := strings.Cut(line, ":")
		for _, word := range serviceWord.FindAllString(services, -1) {
			if name := "libnss_" + word + ".so.2"; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// check compares what the tools are now with what they were. The loader's list of libraries may be the candidate's as
// long as it leads to the image's files for each of them; else it is the image's again.
func (t *toolSet) check(losses *outcome.Losses) error {
	if len(t.names) == 0 {
		return nil
	}
	if _, now, _, err := readCache(); !t.guarded[loaderCache] && (err != nil || !t.leadsAsBefore(now)) {
		if err := t.restoreCache(); err != nil {
			return err
		}
		losses.Drop(loaderCache, lostTool)
	}
	now, err := findTools(t.names)
	if err != nil {
		return err
	}
	if !maps.Equal(now.files, t.files) {
		return errors.New("the tools of the check are not those of the image")
	}
	return nil
}

func (t *toolSet) leadsAsBefore(now map[string][]string) bool {
	for name := range t.wanted {
		if !slices.Equal(t.listed[name], now[name]) {
			return false
		}
	}
	return true
}

func (t *toolSet) restoreCache() error {
	folder, err := untrusted.OpenFolder(path.Dir(loaderCache))
	if err != nil {
		return err
	}
	defer folder.Close()
	if !t.hasCache {
		return untrusted.RemoveAt(folder, path.Base(loaderCache), 0)
	}
	return untrusted.ReplaceFileAt(folder, path.Base(loaderCache), t.cache)
}

// readCache reads glibc's list of libraries: the paths of each name, in their order.
func readCache() ([]byte, map[string][]string, bool, error) {
	folder, err := untrusted.OpenFolder(path.Dir(loaderCache))
	if errors.Is(err, unix.ENOENT) {
		return nil, nil, false, nil
	}
	if err != nil {
		return nil, nil, false, err
	}
	defer folder.Close()
	file, err := untrusted.OpenFileAt(folder, path.Base(loaderCache))
	if errors.Is(err, unix.ENOENT) {
		return nil, nil, false, nil
	}
	if err != nil {
		return nil, nil, false, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, cacheBytes+1))
	if err != nil {
		return nil, nil, false, err
	}
	listed, err := parseCache(content)
	return content, listed, true, err
}

var errCache = errors.New("the loader's list of libraries cannot be read")

// Forms of the list, of glibc 2.2 and later: of the oldest nothing but its length is read.
const (
	oldMagic, oldHeader, oldEntry = "ld.so-1.7.0\x00", 16, 12
	newMagic, newHeader, newEntry = "glibc-ld.so.cache1.1", 48, 24
)

func parseCache(content []byte) (map[string][]string, error) {
	if len(content) > cacheBytes {
		return nil, errCache
	}
	if bytes.HasPrefix(content, []byte(oldMagic[:11])) && len(content) >= oldHeader {
		begin := oldHeader + int64(binary.NativeEndian.Uint32(content[12:]))*oldEntry
		begin = (begin + 7) &^ 7
		if begin > int64(len(content)) {
			return nil, errCache
		}
		content = content[begin:]
	}
	if !bytes.HasPrefix(content, []byte(newMagic)) || len(content) < newHeader {
		return nil, errCache
	}
	count := int64(binary.NativeEndian.Uint32(content[20:]))
	if newHeader+count*newEntry > int64(len(content)) {
		return nil, errCache
	}
	listed, size := map[string][]string{}, 0
	for index := range count {
		entry := content[newHeader+index*newEntry:]
		key, keyErr := textAt(content, binary.NativeEndian.Uint32(entry[4:]))
		value, valueErr := textAt(content, binary.NativeEndian.Uint32(entry[8:]))
		size += len(key) + len(value)
		if keyErr != nil || valueErr != nil || size > cacheNames {
			return nil, errCache
		}
		listed[key] = append(listed[key], value)
	}
	return listed, nil
}

func textAt(content []byte, position uint32) (string, error) {
	if int64(position) >= int64(len(content)) {
		return "", errCache
	}
	text, _, isEnded := bytes.Cut(content[position:], []byte{0})
	if !isEnded || len(text) > unix.PathMax {
		return "", errCache
	}
	return string(text), nil
}
