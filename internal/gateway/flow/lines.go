package flow

import (
	"bytes"
	"encoding/csv"
	"regexp"
	"strings"

	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// Many tools return text for people instead of JSON: tables, and lines such as "From: Ann <ann@example.com>". The
// service itself writes the names and the columns, so their values are fields. Text by other people comes after these
// lines.

// authored contains words in the names of tools that return the text of one author. That author can imitate lines with
// a name and a value, so the values of these lines are not fields.
var authored = map[string]bool{
	"document": true, "doc": true, "note": true, "page": true, "file": true, "log": true, "logs": true, "content": true, "contents": true,
	"readme": true, "article": true, "comment": true, "text": true,
}

// member matches a line with a name and a value, which may be an item of a list.
var member = regexp.MustCompile(`^\s{0,8}(?:[-*•]\s+|\d{1,4}[.)]\s+)?\**([\p{L}_][\p{L}\p{N}_ .#-]{0,30}?)\**:\**\s+(\S.*)$`)

// minMembers is the minimum number of lines with a name and a value. If a text has fewer, their values are not fields.
const minMembers = 2

// members splits a text that begins with lines of names and values. The first other line ends a single object, because
// the text of an author may follow. In a list, another object may follow after an empty line. This object must begin
// with a line of a name and a value, or with a heading like that of the first object. members returns false if the text
// does not begin with lines of names and values.
func (s *splitter) members(text []byte, list bool) bool {
	lines := bytes.Split(text, []byte("\n"))
	fields, at, headings := 0, 0, map[string]bool{}
	names, first := map[string]bool{}, true // the names in the first object; the other objects may have only these
read:
	for ; at < len(lines) && at < maxAtoms; at++ {
		line := bytes.TrimRight(lines[at], " \r")
		m := member.FindSubmatch(line)
		switch {
		case m != nil && (first || names[string(m[1])]):
			fields++
			names[string(m[1])] = true
			continue
		case m != nil: // the text of an author can contain such lines
		case list && len(line) == 0:
			first = first && fields == 0
			continue
		case list && (fields == 0 || headings[heading(line)]):
			headings[heading(line)] = true
			first = first && fields == 0
			continue
		}
		break read
	}
	if fields < minMembers {
		return false
	}
	for _, line := range lines[:at] {
		if m := member.FindSubmatch(bytes.TrimRight(line, " \r")); m != nil {
			s.leaf(m[2], isTextName(strings.ToLower(string(m[1]))))
			continue
		}
		s.texts = append(s.texts, nil, line)
	}
	s.texts = append(s.texts, nil, bytes.Join(lines[at:], []byte("\n")))
	return true
}

// heading returns a line without its numbers, for comparison with other headings.
func heading(line []byte) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, string(line))
}

// afterHeading splits a heading with a colon and what follows it: JSON, a YAML list, or the rows of a table. It returns
// false for any other text.
func (s *splitter) afterHeading(text []byte) bool {
	heading, list, found := bytes.Cut(text, []byte(":\n"))
	list = bytes.TrimLeft(list, "\r\n")
	if !found || len(list) == 0 || bytes.IndexByte(heading, '\n') >= 0 || !toonHeading.Match(heading) && hasRequest(heading) {
		return false
	}
	if (list[0] == '{' || list[0] == '[') && rawjson.Valid(list) {
		s.texts = append(s.texts, heading)
		s.json(list, false, 0)
		return true
	}
	var columns []string
	if m := toonHeading.FindSubmatch(heading); m != nil {
		columns = strings.Split(string(m[1]), ",")
	}
	from := len(s.texts)
	s.texts = append(s.texts, heading)
	if s.rows(list, columns) || bytes.HasPrefix(list, []byte("- ")) && s.mappings(list) {
		return true
	}
	s.texts = s.texts[:from]
	return false
}

// hasRequest reports whether a heading contains a verb that may ask for an action.
func hasRequest(heading []byte) bool {
	w := wordsOf(heading)
	for i := range w.len() {
		if word := w.token(i); table.of(word) != 0 && !reports(word) && !thirdPerson(word) {
			return true
		}
	}
	return false
}

// tabular contains words in the names of tools that return a table, even if another word in the name is in authored, as in
// get_sheet_content.
var tabular = map[string]bool{"sheet": true, "sheets": true, "spreadsheet": true, "worksheet": true, "rows": true, "csv": true}

// written contains words in the names of tools that return text even if another word is in tabular.
var written = map[string]bool{"note": true, "comment": true, "doc": true, "document": true}

// numberedRow matches a row such as "Row 2: Ann, ann@example.org", as servers for spreadsheets print it. toonHeading
// matches the heading of a TOON table: the number of rows and the names of the columns.
var (
	numberedRow = regexp.MustCompile(`^Row \d+: (.*)$`)
	toonHeading = regexp.MustCompile(`^[\w.]*\[\d+\]\{([\w.,]+)\}$`)
)

// rows splits the rows of a table, whose cells have commas between them: the numbered rows of a spreadsheet, or the
// indented rows of a table in TOON. It returns false if the text has other lines.
func (s *splitter) rows(text []byte, columns []string) bool {
	var rows [][]string
	for line := range strings.Lines(string(text)) {
		m := numberedRow.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		switch {
		case len(rows) == maxAtoms:
			return false
		case m != nil:
			line = m[1]
		case columns == nil || !strings.HasPrefix(line, "  "):
			return false
		}
		cells, err := csv.NewReader(strings.NewReader(strings.TrimSpace(line))).Read()
		if err != nil || columns != nil && len(cells) != len(columns) {
			return false
		}
		rows = append(rows, cells)
	}
	if columns == nil && len(rows) > 0 {
		columns = rows[0]
	}
	for _, cells := range rows {
		s.texts = append(s.texts, nil)
		for i, cell := range cells {
			s.leaf([]byte(strings.TrimSpace(cell)), i >= len(columns) || isTextName(strings.ToLower(strings.TrimSpace(columns[i]))))
		}
	}
	return len(rows) > 0
}

// columnNames matches the first line of a table: names in capital letters with at least two spaces between them.
var columnNames = regexp.MustCompile(`^[A-Z][A-Z0-9_()%/-]*(?: [A-Z0-9_()%/-]+)*(?:(?:\s{2,}|\t)[A-Z][A-Z0-9_()%/-]*(?: [A-Z0-9_()%/-]+)*)+\s*$`)

// columnGap matches the space between two cells.
var columnGap = regexp.MustCompile(`\s{2,}|\t`)

// table splits a table of a program such as kubectl. It returns false if the text is no table.
func (s *splitter) table(text []byte) bool {
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	if len(lines) < 2 || len(lines) > maxAtoms || !columnNames.MatchString(lines[0]) {
		return false
	}
	names := columnGap.Split(strings.TrimSpace(lines[0]), -1)
	rows := make([][]string, 0, len(lines)-1)
	for _, line := range lines[1:] {
		cells := columnGap.Split(strings.TrimSpace(line), -1)
		if len(cells) > len(names) {
			return false
		}
		rows = append(rows, cells)
	}
	for _, cells := range rows {
		s.texts = append(s.texts, nil)
		for i, cell := range cells {
			s.leaf([]byte(cell), len(cells) == len(names) && isTextName(strings.ToLower(names[i])))
		}
	}
	return true
}
