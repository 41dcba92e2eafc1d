//go:build unix

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// step is one checked part of a page.
type step struct {
	line int
	kind kind
	text string // the commands, the content of the file, or the text that the console must show
	// For commands:
	reason     string // the reason why only "make prove" runs the step
	background bool
	exit       int
	want       []string // the expected output; nil if the page shows none
	// For a file: its name. For a page of the console: its path, and the form fields to fill in.
	name   string
	fields []string
}

type kind int

const (
	commands kind = iota
	file
	look
)

var (
	directive  = regexp.MustCompile(`^ *<!-- (.*) -->$`)
	unfenced   = regexp.MustCompile("^[ >]*( {4}|\t)|```|~~~|<pre") // forms of preformatted text that a page must not use
	command    = regexp.MustCompile(`^( *\$ )?ambit [a-z]`)
	lookAt     = regexp.MustCompile(`^console (/\S*)((?: [a-z_]+="[^"]*")*) shows "([^"]+)"$`)
	fieldValue = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
)

// mark contains the comments above a block.
type mark struct {
	line          int
	notRun, prove string
	background    bool
	exit          int
	file          string
	measured      bool // the block is written by "make bench"
	pending       bool // set if the comments belong to a block that was not read yet
}

// readPage returns the steps of a page. Every block is run or gives a reason for not running it. A command that is
// never run becomes wrong sooner or later.
//
//	sh       commands; all blocks of a page run in one shell
//	output   the output of the commands above; … matches any text, and alone on a
//	         line it matches any lines
//	text     pictures and tables, without commands
//	others   saved as a file for commands below: <!-- file: NAME --> above the block
//
// Any other block is an error, and so is preformatted text outside a block.
//
// Comments above a block: "not run: REASON", "prove: REASON" (only make prove runs it), "background", "exit N",
// "file: NAME". The comment <!-- console /PATH shows "TEXT" --> checks a page of the console. Fields before
// "shows", such as text="one two", are first filled into the form on that page.
func readPage(path string) ([]step, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var steps []step
	var m mark
	lines := strings.Split(string(src), "\n")
	after := -1 // the step whose output may follow
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		at := fmt.Sprintf("%s:%d", path, i+1)
		if d := directive.FindStringSubmatch(line); d != nil {
			s, err := m.read(d[1], i+1)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", at, err)
			}
			if s != nil {
				steps = append(steps, *s)
			}
			after = -1
			continue
		}
		lang, ok := strings.CutPrefix(strings.TrimLeft(line, " "), "```")
		if !ok {
			if unfenced.MatchString(line) && path != filepath.Join(root, "docs", "reference", "verbs.md") { // TestExamples checks that page
				return nil, fmt.Errorf("%s: preformatted text must be a block between lines of ```", at)
			}
			if strings.TrimSpace(line) != "" {
				if m.pending {
					return nil, fmt.Errorf("%s:%d: this comment belongs to no block", path, m.line)
				}
				after = -1
			}
			continue
		}
		start, indent := i+1, len(line)-len(strings.TrimLeft(line, " "))
		var body []string
		for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "```"; i++ {
			body = append(body, strings.TrimPrefix(lines[i], strings.Repeat(" ", indent)))
		}
		if i == len(lines) {
			return nil, fmt.Errorf("%s: this block has no closing ```", at)
		}
		text := strings.Join(body, "\n") + "\n"
		switch {
		case m.notRun != "":
		case m.file != "":
			steps = append(steps, step{line: start, kind: file, name: m.file, text: text})
		case lang == "sh":
			steps = append(steps, step{line: start, kind: commands, text: text, reason: m.prove, background: m.background, exit: m.exit})
			after = len(steps) - 1
			m = mark{}
			continue
		case lang == "output" && after >= 0:
			steps[after].want = body
		case lang == "output":
			return nil, fmt.Errorf("%s: output must follow the commands that print it", at)
		case lang == "text":
			if n := slices.IndexFunc(body, command.MatchString); n >= 0 && !m.measured {
				return nil, fmt.Errorf("%s:%d: %s", path, start+1+n, ofSh)
			}
		case lang == "console" || lang == "bash" || lang == "shell":
			return nil, fmt.Errorf("%s: %s", at, ofSh)
		case lang == "":
			return nil, fmt.Errorf("%s: a block without a language: use sh, output or text", at)
		default:
			return nil, fmt.Errorf("%s: a block of %s needs the comment \"file: NAME\" or \"not run: REASON\"", at, lang)
		}
		m, after = mark{}, -1
	}
	for i := len(steps) - 1; i >= 0 && steps[i].kind != commands; i-- {
		if steps[i].kind == file {
			return nil, fmt.Errorf("%s:%d: no command below reads this file", path, steps[i].line)
		}
	}
	return steps, nil
}

const ofSh = "commands must be in a block of sh; to skip them, add the comment \"not run: REASON\""

func (m *mark) read(text string, line int) (*step, error) {
	key, value, _ := strings.Cut(text, ":")
	value = strings.TrimSpace(value)
	m.line, m.pending = line, true
	switch {
	case key == "not run" && value != "":
		m.notRun = value
	case key == "prove" && value != "":
		m.prove = value
	case key == "file" && value != "":
		m.file = value
	case text == "background":
		m.background = true
	case strings.HasPrefix(text, "exit "):
		n, err := strconv.Atoi(strings.TrimPrefix(text, "exit "))
		m.exit = n
		return nil, err
	default:
		l := lookAt.FindStringSubmatch(text)
		if l == nil {
			m.pending, m.measured = false, strings.HasPrefix(text, "bench ")
			if strings.HasPrefix(text, "console") || strings.HasPrefix(text, "not run") {
				return nil, fmt.Errorf("cannot read the comment %q", text)
			}
			return nil, nil // the comment is for people who edit the page
		}
		m.pending = false
		return &step{line: line, kind: look, name: l[1], fields: fieldValue.FindAllString(l[2], -1), text: l[3]}, nil
	}
	return nil, nil
}

// matches reports whether the output matches the page.
func matches(want, got []string) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if want[0] == "…" {
		for skip := 0; skip <= len(got); skip++ {
			if matches(want[1:], got[skip:]) {
				return true
			}
		}
		return false
	}
	return len(got) > 0 && matchesLine(want[0], got[0]) && matches(want[1:], got[1:])
}

func matchesLine(want, got string) bool {
	parts := strings.Split(want, "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(strings.TrimRight(got, " "))
}
