package gpars

import "strings"

// Bounds that keep a constraint within what the library that resolves it takes.
const (
	maxConstraint = 256
	maxGroups     = 32
	maxDigits     = 15
)

// isConstraint reports whether s is a version constraint, and whether npm
// reads it too. It is written by hand because every load of a manifest comes
// here: one pass, no regular expression, no allocation. What it accepts, the
// resolving library parses in the form that resolvable gives it; a fuzz test
// holds the two together.
//
//	constraint = group { "||" group }
//	group      = version " - " version | comparator { " " comparator }
//	comparator = [ ">=" | "<=" | ">" | "<" | "=" | "^" | "~" | "~>" ] version
//	version    = ["v"] part [ "." part [ "." part [ "-" prerelease ] [ "+" build ] ] ]
func isConstraint(s string) (ok, npm bool) {
	if len(s) > maxConstraint {
		return false, false
	}
	c := scanner{s: s, npm: true}
	c.space()
	for range maxGroups {
		if !c.group() {
			return false, false
		}
		c.space()
		if !c.take("||") {
			ok = c.at == len(s)
			return ok, ok && c.npm
		}
		c.space()
	}
	return false, false
}

// resolvable puts blanks around ||. Without them the resolving library takes
// the bars for a part of the version in a hyphen range, and 1||2 - 3 for
// something wider than it is.
func resolvable(constraint string) string {
	return strings.ReplaceAll(constraint, "||", " || ")
}

type scanner struct {
	s   string
	at  int
	npm bool
}

// peek returns the next byte, 0 at the end.
func (c *scanner) peek() byte {
	if c.at < len(c.s) {
		return c.s[c.at]
	}
	return 0
}

func (c *scanner) take(text string) bool {
	if strings.HasPrefix(c.s[c.at:], text) {
		c.at += len(text)
		return true
	}
	return false
}

// space skips blanks and reports whether there were any.
func (c *scanner) space() bool {
	start := c.at
	for c.peek() == ' ' || c.peek() == '\t' {
		c.at++
	}
	return c.at > start
}

func (c *scanner) group() bool {
	plain := !c.operator()
	if !c.version() {
		return false
	}
	for {
		blank := c.space()
		switch {
		case c.take(","):
			c.npm = false
			c.space()
		case c.at == len(c.s) || c.peek() == '|':
			return true
		case !blank:
			return false
		case plain && c.take("-"):
			return c.space() && c.version()
		}
		plain = false
		c.operator()
		if !c.version() {
			return false
		}
	}
}

// operator takes a comparator's sign and the blanks behind it.
func (c *scanner) operator() bool {
	start := c.at
	switch c.peek() {
	case '>', '<':
		c.at++
		c.take("=")
	case '=':
		c.at++
		if c.take(">") || c.take("<") {
			c.npm = false
		}
	case '!':
		if c.take("!=") {
			c.npm = false
		}
	case '~':
		c.at++
		c.take(">")
	case '^':
		c.at++
	}
	if c.at == start {
		return false
	}
	c.space()
	return true
}

func (c *scanner) version() bool {
	c.take("v")
	if !c.part() {
		return false
	}
	for range 2 {
		if !c.take(".") {
			return true
		}
		if !c.part() {
			return false
		}
	}
	if c.take("-") && !c.identifiers(true) {
		return false
	}
	return !c.take("+") || c.identifiers(false)
}

// part takes a number without leading zeros, or the x of an x-range.
func (c *scanner) part() bool {
	start := c.at
	switch c.peek() {
	case 'x', 'X', '*':
		c.at++
		return true
	}
	for isDigit(c.peek()) {
		c.at++
	}
	n := c.at - start
	return n > 0 && n <= maxDigits && (n == 1 || c.s[start] != '0')
}

// identifiers takes those of a prerelease, whose numbers have no leading
// zeros, or of a build.
func (c *scanner) identifiers(prerelease bool) bool {
	for {
		start, number := c.at, true
		for b := c.peek(); isDigit(b) || isLetter(b) || b == '-'; b = c.peek() {
			number = number && isDigit(b)
			c.at++
		}
		n := c.at - start
		if n == 0 || prerelease && number && n > 1 && c.s[start] == '0' {
			return false
		}
		if !c.take(".") {
			return true
		}
	}
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

func isLetter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }
