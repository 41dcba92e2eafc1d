//go:build unix

package docs

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// cast lists the commands in README.md's picture of a terminal.
var cast = []string{
	"ambit new counter --from wordcount",
	"ambit inspect counter",
	`ambit call counter counter --input '{"text": "Trust is good. A journal is better."}'`,
	"ambit why counter delete_everything",
	"ambit journal verify",
}

// TestCast runs the commands and compares their output with the picture. The flag -update writes the picture.
func TestCast(t *testing.T) {
	s := newShell(t, ambit(t), "", []string{"CLICOLOR_FORCE=1"})
	s.send("unset NO_COLOR; mkdir mine; cd mine\n")
	var screen []string
	for _, c := range cast {
		out := filepath.Join(s.home, ".cast")
		s.send(fmt.Sprintf("set +e; {\n%s\n} >%s 2>&1 </dev/null\necho $? >&3; set -e\n", c, out))
		if s.answer(c) == "" {
			t.Fatalf("the command %s printed no exit code", c)
		}
		screen = append(append(screen, "\x1b[32m$\x1b[0m "+c), s.printed(out)...)
		screen = append(screen, "")
	}
	picture := draw(screen[:len(screen)-1])
	file := filepath.Join(root, "docs", "images", "first-call.svg")
	if *update {
		if err := os.WriteFile(file, []byte(picture), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != picture {
		t.Errorf("%s differs from the commands' output: run go test ./internal/test/docs -run TestCast -update\n%s",
			file, firstDifference(string(got), picture))
	}
}

var colour = regexp.MustCompile("\x1b\\[([0-9;]*)m")

// draw renders a screen as SVG.
func draw(screen []string) string {
	const lineHeight, charWidth, margin = 19, 8.43, 20
	wide := 0
	for _, l := range screen {
		wide = max(wide, len([]rune(colour.ReplaceAllString(l, ""))))
	}
	width, height := int(float64(wide)*charWidth)+2*margin, len(screen)*lineHeight+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="A terminal: an agent is made, inspected and called">`+"\n", width, height, width, height)
	b.WriteString(`<style>text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#d7dce2;white-space:pre}` +
		`.c1{font-weight:bold;fill:#fff}.c2{fill:#8b949e}.c31{fill:#ff7b72}.c32{fill:#7ee787}.c33{fill:#e3b341}.c36{fill:#79c0ff}</style>` + "\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="10" fill="#0d1117"/>`+"\n", width, height)
	for i, l := range screen {
		if l == "" {
			continue
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" xml:space="preserve">%s</text>`+"\n", margin, margin+14+i*lineHeight, spans(l))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func spans(line string) string {
	var b strings.Builder
	class := ""
	write := func(text string) {
		switch {
		case text == "":
		case class == "":
			b.WriteString(html.EscapeString(text))
		default:
			fmt.Fprintf(&b, `<tspan class="%s">%s</tspan>`, class, html.EscapeString(text))
		}
	}
	for {
		at := colour.FindStringSubmatchIndex(line)
		if at == nil {
			write(line)
			return b.String()
		}
		write(line[:at[0]])
		class = ""
		for _, c := range strings.Split(line[at[2]:at[3]], ";") {
			if c != "" && c != "0" {
				class = strings.TrimSpace(class + " c" + c)
			}
		}
		line = line[at[1]:]
	}
}
