package untrusted

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// frameworkFolder is the folder of a workspace that is ours; no link of a candidate may lead there.
const frameworkFolder = "securebench"

// StaysInside reports whether a candidate's link stays in its tree and out of our folder, whatever
// else lies in the tree: it climbs only at its beginning and not above the root, and does not name our
// folder. Sealing and unpacking keep to this rule, whose cases are testdata/links.json (decision 0043).
func StaysInside(name, target string) bool {
	if target == "" || path.IsAbs(target) || len(target) >= unix.PathMax {
		return false
	}
	depth := strings.Count(name, "/")
	goesDown := false
	for _, component := range strings.Split(target, "/") {
		switch component {
		case "", ".":
		case "..":
			depth--
			if goesDown || depth < 0 {
				return false
			}
		case frameworkFolder:
			return false
		default:
			goesDown = true
		}
	}
	return true
}

// IsBelow reports whether a clean path is another one or lies below it.
func IsBelow(name, parent string) bool {
	return name == parent || parent == "/" || strings.HasPrefix(name, parent+"/")
}
