package main

import (
	"os"
	"strings"
	"testing"
)

// ready marks a phase whose program must be there before the candidate is.
func ready(one map[string]any) map[string]any {
	one["ready"] = true
	return one
}

func TestPrograms(t *testing.T) {
	cases := map[string]struct {
		command  []string
		isScript bool
		want     int
		words    string
	}{
		"a program of the image":         {[]string{"true"}, false, 0, ""},
		"a program that is not there":    {[]string{"no-such-program"}, false, 95, "no-such-program"},
		"a path that is not there":       {[]string{"/no/such/program"}, false, 95, "/no/such/program"},
		"a file that cannot be executed": {[]string{"ROOT/plain"}, false, 95, "not executable"},
		"a folder":                       {[]string{"/proc"}, false, 95, "not executable"},
		"a script":                       {[]string{"ROOT/script"}, true, 0, ""},
		"a script that is not there":     {[]string{"ROOT/missing"}, true, 95, "missing"},
		"a script without interpreter":   {[]string{"ROOT/lost"}, true, 95, "/no/such/shell"},
		"a script of env":                {[]string{"ROOT/by-env"}, true, 0, ""},
		"a script of env that is lost":   {[]string{"ROOT/lost-env"}, true, 95, "no-such-interpreter"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.write("plain", "true\n")
			f.write("script", "#!/bin/sh\nexit 0\n")
			f.write("lost", "#!/no/such/shell\n")
			f.write("by-env", "#!/usr/bin/env sh\nexit 0\n")
			f.write("lost-env", "#!/usr/bin/env no-such-interpreter\n")
			command := strings.ReplaceAll(test.command[0], "ROOT", f.root)
			one := ready(phase("checker", nil, command))
			one["script"] = test.isScript
			f.spec["verdict"] = true
			got := f.phases(one).run()
			if got.code != test.want || !strings.Contains(got.message.Error, test.words) {
				t.Errorf("got %d, %+v", got.code, got.message)
			}
		})
	}
}

func TestPrechecks(t *testing.T) {
	cases := map[string]struct {
		precheck map[string]any
		want     int
		words    string
	}{
		"fits":              {shell("test ! -e placed"), 0, ""},
		"does not fit":      {shell("echo no test >&2; exit 1"), 95, "no test"},
		"cannot be started": {phase("x", nil, "no-such-program"), 95, "no-such-program"},
		"finds nothing out": {phase("x", 0.2, "sleep", "60"), 0, ""},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.write("lane/placed", "")
			test.precheck["workdir"] = f.path("workspace")
			last := shell("test -e placed; touch ran")
			last["workdir"] = f.path("workspace")
			f.spec["prechecks"] = []any{test.precheck}
			f.spec["verdict"] = true
			f.spec["copies"] = []any{map[string]any{"source": f.path("lane"), "to": f.path("workspace")}}
			got := f.phases(last).run()
			if got.code != test.want || !strings.Contains(got.message.Error, test.words) {
				t.Errorf("got %d, %+v", got.code, got.message)
			}
			if _, err := os.Stat(f.path("workspace/ran")); (err == nil) != (test.want == 0) {
				t.Errorf("the check ran: %v", err == nil)
			}
		})
	}
}

func TestTestsOfAPatchAreCompiledOnTheBase(t *testing.T) {
	broken := "diff --git a/test_new.py b/test_new.py\nnew file mode 100644\n--- /dev/null\n+++ b/test_new.py\n@@ -0,0 +1 @@\n+def (\n"
	cases := map[string]struct {
		patch string
		want  int
	}{
		"names without tests": {newTest, 0},
		"a test":              {newTest + broken, 95},
		"data":                {newTest + strings.ReplaceAll(broken, "test_new", "data"), 0},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCheckout(t)
			c.patch("test_patch", test.patch)
			c.spec["compile"] = phaseIn(c.path("repo"), "sh", "-c", `echo "$@" >&2; grep -q '^hello$' hello && ! grep -q 'def (' "$@"`, "compile")
			got := c.run()
			if got.code != test.want {
				t.Errorf("got %d, %+v", got.code, got.message)
			}
			if test.want == 95 && !strings.HasSuffix(got.message.Error, "/repo/test_new.py") {
				t.Errorf("got %+v", got.message)
			}
		})
	}
}
