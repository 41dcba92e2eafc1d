package client

import (
	"bytes"
	"errors"
	"strings"
)

// launcher edits a script that starts the agent. The whole script is the entry. The script is a Windows batch file if
// the command ends in .exe, and a shell script if not.
type launcher struct{}

func (launcher) valueOf(e Entry) any { return script(e) }

func (launcher) get(text []byte, _ string) (any, error) {
	if len(text) == 0 {
		return nil, nil
	}
	return string(text), nil
}

func (launcher) set(text []byte, _ string, e Entry) (edited, error) {
	if strings.ContainsAny(e.Command+e.Home+strings.Join(e.Args, ""), "\r\n\x00") {
		return edited{}, errors.New("the path of ambit or of its home folder contains a line break or NUL")
	}
	s := script(e)
	return edited{text: []byte(s), line: 1, removed: string(text), added: s}, nil
}

func (launcher) remove(text []byte, _ string, _ bool) (edited, error) {
	return edited{text: nil, line: 1, removed: string(bytes.Clone(text))}, nil
}

func script(e Entry) string {
	if strings.HasSuffix(strings.ToLower(e.Command), ".exe") {
		lines := []string{"@echo off"}
		if e.Home != "" {
			lines = append(lines, `set "`+homeVariable+"="+batch(e.Home)+`"`)
		}
		words := []string{`"` + batch(e.Command) + `"`}
		for _, a := range e.Args {
			words = append(words, `"`+batch(a)+`"`)
		}
		return strings.Join(append(lines, strings.Join(words, " ")+" %*"), "\r\n") + "\r\n"
	}
	var b strings.Builder
	b.WriteString("#!/bin/sh\n")
	if e.Home != "" {
		b.WriteString("export " + homeVariable + "=" + shell(e.Home) + "\n")
	}
	b.WriteString("exec " + shell(e.Command))
	for _, a := range e.Args {
		b.WriteString(" " + shell(a))
	}
	b.WriteString(" \"$@\"\n")
	return b.String()
}

// shell quotes a word for sh.
func shell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// batch makes a string safe for a batch file. It doubles percent signs, which cmd would expand, and removes quotes,
// which Windows paths cannot contain.
func batch(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, `"`, ""), "%", "%%")
}
