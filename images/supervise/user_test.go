package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"securebench.dev/supervise/internal/outcome"
)

const (
	accounts = "root:x:0:0:root:/root:/bin/sh\nbroken:x:7\napp:x:1000:1001::/home/app:/bin/sh\ntoor:x:0:0::/toor:\n1000:x:77:78:::\n"
	teams    = "root:x:0:\nvideo:x:44:ben,app\nother:x:45:apple\n"

	// whoami prints numbers of user and groups, capabilities and the home.
	whoami = `while read -r key real effective rest; do
  case $key in Uid: | Gid:) echo "$key $real $effective" ;; Groups:) echo "$key $real $effective $rest" ;; CapPrm: | CapEff:) echo "$key $real" ;; esac
done < /proc/self/status; echo "home $HOME"`
	noCapabilities = "CapPrm: 0000000000000000\nCapEff: 0000000000000000\n"
)

// asUser is a container whose commands are those of a user, in an image with accounts.
func asUser(t *testing.T, user, script string) *container {
	t.Helper()
	c := newContainer(t)
	c.keeps = ",+setuid,+setgid"
	must(t, os.MkdirAll(filepath.Join(c.folder, "upper/etc"), 0o755))
	must(t, os.WriteFile(filepath.Join(c.folder, "upper/etc/passwd"), []byte(accounts), 0o644))
	must(t, os.WriteFile(filepath.Join(c.folder, "upper/etc/group"), []byte(teams), 0o644))
	must(t, os.Chmod(filepath.Join(c.folder, "output"), 0o777))
	if user != "" {
		c.spec["user"] = user
	}
	c.spec["phases"] = []any{phase("main", 60, "bash", "-c", script)}
	return c
}

func TestCommandsAreThoseOfTheUser(t *testing.T) {
	for user, want := range map[string]string{
		"app":  "Uid: 1000 1000\nGid: 1001 1001\nGroups: 44 1001 \n" + noCapabilities + "home /home/app\n",
		"4242": "Uid: 4242 4242\nGid: 0 0\nGroups: 0  \n" + noCapabilities + "home /\n",
		"toor": "Uid: 0 0\nGid: 0 0\nGroups: 0  \n" + noCapabilities + "home /toor\n",
		// A name comes before a number.
		"1000": "Uid: 77 77\nGid: 78 78\nGroups: 78  \n" + noCapabilities + "home /\n",
	} {
		t.Run(user, func(t *testing.T) {
			c := asUser(t, user, whoami)
			if got := c.run(); got.code != 0 || c.read("output/stdout") != want {
				t.Errorf("%+v: %q %q", got.message, c.read("output/stdout"), c.read("output/stderr"))
			}
		})
	}
}

// TestWithoutAUserTheCapabilitiesWouldReachCommands is the twin: the program keeps what it starts with.
func TestWithoutAUserTheCapabilitiesWouldReachCommands(t *testing.T) {
	c := asUser(t, "", whoami)
	if got := c.run(); got.code != 0 || strings.Contains(c.read("output/stdout"), noCapabilities) {
		t.Errorf("%+v: %q", got.message, c.read("output/stdout"))
	}
}

func TestNoCommandBecomesRootAgain(t *testing.T) {
	c := asUser(t, "app", `setpriv --reuid=0 true && echo root; echo x > /etc/passwd || echo closed; echo mine > /tmp/mine && cat /tmp/mine`)
	must(t, os.Mkdir(filepath.Join(c.folder, "upper/tmp"), 0o777))
	must(t, os.Chmod(filepath.Join(c.folder, "upper/tmp"), 0o777))
	if got := c.run(); c.read("output/stdout") != "closed\nmine\n" {
		t.Errorf("%+v: %q %q", got.message, c.read("output/stdout"), c.read("output/stderr"))
	}
}

func TestAUserThatTheImageLacks(t *testing.T) {
	for isVerdict, want := range map[bool]int{false: outcome.CodeStaging, true: outcome.CodeUnfit} {
		c := asUser(t, "nobody-here", "true")
		c.spec["verdict"] = isVerdict
		if got := c.run(); got.code != want || got.message.Error != `the image has no user "nobody-here"` {
			t.Errorf("verdict %v: %+v", isVerdict, got.message)
		}
	}
}

// TestACandidateDoesNotSayWhoAUserIs: its changes come in as root, after the user was looked up.
func TestACandidateDoesNotSayWhoAUserIs(t *testing.T) {
	sealed, digest, _ := agentWorks(t, `echo 'app:x:0:0::/:' > /etc/passwd; mkdir /opt; echo new > /opt/new`)
	c := asUser(t, "app", `while read -r key real rest; do [ $key != Uid: ] || echo $real; done < /proc/self/status; cat /opt/new /etc/passwd`)
	must(t, os.WriteFile(filepath.Join(c.folder, "candidate", "root.tar"), sealed, 0o644))
	c.spec["changes"] = map[string]any{
		"path": "/mounted/candidate/root.tar", "digest": digest, "excluded": ours, "tools": []string{"bash"},
	}
	if got := c.run(); got.code != 0 || c.read("output/stdout") != "1000\nnew\napp:x:0:0::/:\n" {
		t.Errorf("%+v: %q %q", got.message, c.read("output/stdout"), c.read("output/stderr"))
	}
}

// TestChangesOfAUserAreKept, also those that only the user may read.
func TestChangesOfAUserAreKept(t *testing.T) {
	c := asUser(t, "app", `echo secret > /home/app/key && chmod 600 /home/app/key`)
	must(t, os.MkdirAll(filepath.Join(c.folder, "upper/home/app"), 0o755))
	must(t, os.Chown(filepath.Join(c.folder, "upper/home/app"), 1000, 1001))
	c.spec["root"] = map[string]any{"excluded": ours, "bytes": 1 << 20, "entries": 100}
	got := c.run()
	if root := c.read("output/" + outcome.RootFile); got.code != 0 || !strings.Contains(root, "home/app/key") || !strings.Contains(root, "secret\n") {
		t.Errorf("%+v: %q %q", got.message, c.read("output/stderr"), root)
	}
}

// TestChangesOfAUserAreMadeWithItsRights: the program is root without the right to write into folders of others.
func TestChangesOfAUserAreMadeWithItsRights(t *testing.T) {
	// The folder of the user gives another group than the user's to what is made in it.
	work := `mkdir /home/app/new && echo mine > /home/app/new/x && rm /home/app/old`
	home := func(c *container) *container {
		must(t, os.MkdirAll(filepath.Join(c.folder, "upper/home/app"), 0o755))
		must(t, os.WriteFile(filepath.Join(c.folder, "upper/home/app/old"), nil, 0o644))
		must(t, os.Chown(filepath.Join(c.folder, "upper/home/app"), 1000, 50))
		must(t, os.Chmod(filepath.Join(c.folder, "upper/home/app"), 0o755|os.ModeSetgid))
		return c
	}
	agent := home(asUser(t, "app", work))
	agent.spec["root"] = map[string]any{"excluded": ours, "bytes": 1 << 20, "entries": 100}
	if got := agent.run(); got.code != 0 || got.message.ExitCode != 0 {
		t.Fatalf("agent: %+v: %s", got.message, agent.read("output/stderr"))
	}
	sealed, digest, _ := sealedBy(t, agent)
	for user, want := range map[string]string{"": "0 0000000000000000", "app": "1000 0000000000000000"} {
		for changer, isMade := range map[string]bool{"app": true, "": false} {
			verifier := home(asUser(t, user, `while read -r key real rest; do
  case $key in Uid:) uid=$real ;; CapEff:) echo "$uid $real" ;; esac; done < /proc/self/status`))
			must(t, os.WriteFile(filepath.Join(verifier.folder, "candidate", "root.tar"), sealed, 0o644))
			verifier.spec["changes"] = map[string]any{
				"path": "/mounted/candidate/root.tar", "digest": digest, "excluded": ours, "tools": []string{"bash"}, "user": changer,
			}
			got := verifier.run()
			if !isMade {
				if got.code != outcome.CodeStaging || got.message.Phase != outcome.PhaseCandidate {
					t.Errorf("without the user's rights: %+v", got.message)
				}
				continue
			}
			info, err := os.Stat(filepath.Join(verifier.folder, "upper/home/app/new"))
			if err != nil || info.Sys().(*syscall.Stat_t).Uid != 1000 || info.Mode() != 0o755|os.ModeDir|os.ModeSetgid || got.message.DroppedEntries != 0 {
				t.Errorf("%v, %v, %+v", info, err, got.message)
			}
			if said := strings.TrimSpace(verifier.read("output/stdout")); got.code != 0 || said != want {
				t.Errorf("user %q: %q, %+v", user, said, got.message)
			}
		}
	}
}

// TestAUserSeesItsOwnChanges in an image of which it may not read everything.
func TestAUserSeesItsOwnChanges(t *testing.T) {
	c := asUser(t, "app", `mkdir /tmp/mine; echo x > /tmp/mine/x; chmod 644 /tmp/mine; chmod 000 /tmp/open`)
	for name, mode := range map[string]os.FileMode{"listed": 0o744, "closed": 0o700, "searched": 0o711, "tmp": 0o777, "tmp/open": 0o755} {
		place := filepath.Join(c.folder, "upper", name)
		must(t, os.MkdirAll(filepath.Join(place, "in"), 0o755))
		must(t, os.WriteFile(filepath.Join(place, "file"), nil, 0o644))
		must(t, os.Chmod(place, mode))
	}
	must(t, os.Chown(filepath.Join(c.folder, "upper/tmp/open"), 1000, 1001))
	c.spec["root"] = map[string]any{"excluded": ours, "bytes": 1 << 20, "entries": 100}
	if got := c.run(); got.code != 0 || got.message.ExitCode != 0 {
		t.Fatalf("%+v: %s", got.message, c.read("output/stderr"))
	}
	sealed, _, losses := sealedBy(t, c)
	if names := tarNames(sealed); !slices.Equal(names, []string{"tmp/mine/", "tmp/mine/x", "tmp/open/"}) || losses.Entries != 0 {
		t.Errorf("%q, %+v", names, losses)
	}
}
