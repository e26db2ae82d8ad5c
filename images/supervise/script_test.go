package main

import (
	"os"
	"strings"
	"testing"

	"securebench.dev/supervise/internal/outcome"
)

func TestScriptsStartByTheirFirstLine(t *testing.T) {
	cases := map[string]struct {
		content string
		want    int
		stdout  string
		fault   string
	}{
		"no first line":           {"echo by sh \"$1\"\n", 0, "by sh one\n", ""},
		"an empty file":           {"", 0, "", ""},
		"an interpreter":          {"#!/bin/sh\necho \"$1\"; exit 3\n", 1, "one\n", ""},
		"with its argument":       {"#!/bin/sh -e\nfalse\necho not reached\n", 1, "", ""},
		"with blanks":             {"#! \t/bin/sh \t-eu \t\necho \"$-\" | tr -d sh\n", 0, "ue\n", ""},
		"one argument, not two":   {"#!/bin/echo a b\n", 0, "a b SCRIPT one\n", ""},
		"by env":                  {"#!/usr/bin/env sh\necho \"$1\"\n", 0, "one\n", ""},
		"carriage returns":        {"#!/bin/echo\r\n", 0, "SCRIPT one\n", ""},
		"no interpreter":          {"#!\necho x\n", 64, "", "absolute"},
		"a relative interpreter":  {"#!sh\necho x\n", 64, "", "absolute"},
		"one that is not there":   {"#!/no/such/program\n", 64, "", "/no/such/program"},
		"one that cannot be used": {"#!/proc\n", 64, "", "/proc"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.write("check", test.content)
			one := phase("checker", nil, f.path("check"), "one")
			one["script"] = true
			f.spec["verdict"] = true
			got := f.phases(one).run()
			if got.code != test.want || !strings.Contains(got.message.Error, test.fault) {
				t.Errorf("got code %d, %+v", got.code, got.message)
			}
			if stdout := f.read("output/stdout"); stdout != strings.ReplaceAll(test.stdout, "SCRIPT", f.path("check")) {
				t.Errorf("printed %q", stdout)
			}
		})
	}
}

func TestAScriptThatIsMissingIsNoVerdict(t *testing.T) {
	for name, target := range map[string]string{"missing": "no-such-file", "a folder": "workspace"} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			one := phase("checker", nil, f.path(target))
			one["script"] = true
			f.spec["verdict"] = true
			if got := f.phases(one).run(); got.code != outcome.CodePhase || !strings.Contains(got.message.Error, target) {
				t.Errorf("got code %d, %+v", got.code, got.message)
			}
		})
	}
}

func TestProgramsOfTheCandidateAreNotFound(t *testing.T) {
	f := newFixture(t)
	f.candidate(member{name: "bin/tool", mode: 0o755, content: "#!/bin/sh\necho forged\n"})
	if err := os.Symlink(f.path("workspace")+"/bin", f.path("link")); err != nil {
		t.Fatal(err)
	}
	f.write("trusted/tool", "#!/bin/sh\necho trusted\n")
	if err := os.Chmod(f.path("trusted/tool"), 0o755); err != nil {
		t.Fatal(err)
	}
	one := phase("main", nil, "tool")
	one["workdir"] = f.path("workspace") + "/bin"
	t.Setenv("PATH", ":.:bin:"+f.path("workspace")+"/bin:"+f.path("workspace")+"/../workspace/bin:"+f.path("link")+":"+f.path("trusted")+":/bin")
	f.phases(one).run()
	if got := f.read("output/stdout"); got != "trusted\n" {
		t.Errorf("got %q", got)
	}
}
