package client

import (
	"bytes"
	"errors"
	"strings"
)

// launcher is a small program that starts the agent: a shell script, or a batch file on Windows,
// recognised by the entry's command.
type launcher struct{}

func (launcher) meaning(e Entry) any { return script(e) }

func (launcher) get(text []byte, _ string) (any, error) {
	if len(text) == 0 {
		return nil, nil
	}
	return string(text), nil
}

func (launcher) set(text []byte, _ string, e Entry) (edited, error) {
	if strings.ContainsAny(e.Command+e.Home+strings.Join(e.Args, ""), "\r\n\x00") {
		return edited{}, errors.New("a script cannot contain a path with a line break")
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

// batch escapes characters that cmd would expand. Windows paths contain no quotes.
func batch(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, `"`, ""), "%", "%%")
}
