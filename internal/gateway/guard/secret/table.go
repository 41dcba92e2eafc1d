package secret

import "bytes"

// A table lists the names of its columns in the first line: a file of comma-separated values, or a Markdown table. The
// name of a column is not next to the column's values, so a table must be read row by row.

// The limits of a table: the length of the header line, the length of a row, and the number of columns.
const (
	maxHeader  = 512
	maxRow     = 4 << 10
	maxColumns = 64
)

var (
	columnSigns = bytesOf(",;|\t")
	cellSpace   = bytesOf(" \"'`*\r")
)

// column decides how the values of a column are judged.
type column uint8

const (
	plain column = iota
	aPassword
	aKey
)

const ruleColumn = "table-column"

// tryTable handles the table whose first line contains the word text[start:end]. Each line is read only once, and only
// rows with the same number of columns belong to the table. A row can also contain names with values of their own, such
// as "password=…". The scan handles these separately.
func (s *scan) tryTable(text []byte, start, end int, dst []Match) []Match {
	if start < s.context.table {
		return dst
	}
	after := cellSpace.skip(text, s.runEnd(text, className, end, len(text)), 4)
	if after-end > maxName || after < len(text) && !columnSigns[text[after]] && text[after] != '\n' {
		return dst
	}
	s.effort += 2
	head := max(0, start-maxHeader, s.context.line)
	for n := bytes.IndexByte(text[head:start], '\n'); n >= 0; n = bytes.IndexByte(text[head:start], '\n') {
		head += n + 1
	}
	s.context.line = head
	if head > 0 && text[head-1] != '\n' {
		return dst
	}
	tail := lineEnd(text, after, maxHeader)
	s.context.table = tail
	s.effort += (tail - head) / 16
	sign := byte('\n')
	if i := head + columnSigns.index(text[head:tail]); i < tail {
		sign = text[i]
	}
	if tail == len(text) || text[tail] != '\n' || head > 0 && continues(text[:head-1], sign) {
		return dst
	}
	var columns [maxColumns]column
	count, found := s.readHeader(text[head:tail], sign, &columns)
	if !found || count < 2 {
		return dst
	}
	for at := tail + 1; at < len(text); at++ {
		cell, n, quoted, line := at, 0, false, at
		from := len(dst)
		limit := min(len(text), at+maxRow)
		for ; at <= limit; at++ {
			end := at == limit || text[at] == '\n'
			if !end && text[at] == '"' {
				quoted = !quoted
			}
			if !end && (text[at] != sign || quoted) {
				continue
			}
			if n < count {
				dst = s.tryCell(text, cell, at, columns[n], dst)
			}
			cell = at + 1
			if n++; end {
				break
			}
		}
		if n != count || at == line {
			return dst[:from]
		}
		s.context.table = at
	}
	return dst
}

// lineEnd returns the end of the line at an offset, but not more than limit bytes after the offset.
func lineEnd(text []byte, at, limit int) int {
	limit = min(len(text), at+limit)
	if i := bytes.IndexByte(text[at:limit], '\n'); i >= 0 {
		return at + i
	}
	return limit
}

// continues reports whether the last line of a text belongs to a table.
func continues(text []byte, sign byte) bool {
	last := text[max(0, len(text)-maxHeader):]
	return bytes.IndexByte(last[bytes.LastIndexByte(last, '\n')+1:], sign) >= 0
}

// readHeader reads the names of columns. It returns their number, and whether there are credentials in a column.
func (s *scan) readHeader(text []byte, sign byte, columns *[maxColumns]column) (count int, found bool) {
	for cell := range bytes.SplitSeq(text, []byte{sign}) {
		name := bytes.Trim(cell, " \"'`*\r")
		edge := sign == '|' && len(name) == 0
		if count == maxColumns || !edge && !isHeading(name) {
			return 0, false
		}
		switch {
		case edge || s.judge(isIgnoredName, bytes.ReplaceAll(name, []byte{' '}, []byte{'_'})):
		case s.judge(isPasswordName, name):
			columns[count], found = aPassword, true
		case s.judge(isSecretKey, name):
			columns[count], found = aKey, true
		}
		count++
	}
	return count, found
}

// isHeading reports whether a text can be the name of a column: a few words that begin with a letter.
func isHeading(name []byte) bool {
	if len(name) == 0 || len(name) > maxName || !alnum[name[0]] || name[0] <= '9' {
		return false
	}
	for _, c := range name {
		if !nameClass[c] && c != ' ' && c != '/' && c != ':' {
			return false
		}
	}
	return true
}

// tryCell handles the value in a cell.
func (s *scan) tryCell(text []byte, from, to int, kind column, dst []Match) []Match {
	if kind == plain {
		return dst
	}
	for from < to && cellSpace[text[from]] {
		from++
	}
	for from < to && cellSpace[text[to-1]] {
		to--
	}
	value := text[from:to]
	q := measure(value)
	good := q.token(16) && !isUUID(value)
	if kind == aPassword {
		good = q.password(true) && q.digits < q.size && q.digits > 0
	}
	if !good || isPlaceholder(value) || isLabel(value, q) || isNumber(value) {
		return dst
	}
	s.effort += 16
	s.copies.add(ruleColumn, value, false)
	return append(dst, Match{ruleColumn, from, to, rankName})
}
