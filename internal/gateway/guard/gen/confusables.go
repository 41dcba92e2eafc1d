package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// confusables is the part of Unicode's table of look-alikes (UTS #39) that ends
// in ASCII letters and digits, and that decomposition alone does not resolve. It
// is read from the file that $CONFUSABLES names, confusables.txt.gz.
func confusables() ([]byte, error) {
	path := os.Getenv("CONFUSABLES")
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	var lines []string
	sc := bufio.NewScanner(z)
	for sc.Scan() {
		text, _, _ := strings.Cut(sc.Text(), "#")
		fields := strings.Split(text, ";")
		if len(fields) < 2 {
			continue
		}
		from, err := runes(fields[0])
		if err != nil || len(from) != 1 || from[0] < 0x80 {
			continue
		}
		to, err := runes(fields[1])
		if err != nil {
			return nil, err
		}
		plain := ascii(string(to))
		if plain == "" || ascii(string(from)) != "" {
			continue
		}
		lines = append(lines, fmt.Sprintf("%x %s\n", from[0], plain))
	}
	if err := sc.Err(); err != nil {
		return nil, err // a table cut short would let look-alikes through
	}
	slices.Sort(lines)
	var b bytes.Buffer
	b.WriteString("# From Unicode's confusables.txt, version 17.0.0, Copyright (c) 1991-2025 Unicode, Inc., Unicode License V3\n")
	for _, l := range lines {
		b.WriteString(l)
	}
	return b.Bytes(), nil
}

func runes(s string) (out []rune, err error) {
	for _, f := range strings.Fields(s) {
		n, err := strconv.ParseUint(f, 16, 32)
		if err != nil {
			return nil, err
		}
		out = append(out, rune(n))
	}
	return out, nil
}

// ascii is s in letters and digits, or nothing.
func ascii(s string) string {
	var b strings.Builder
	for _, r := range norm.NFKD.String(s) {
		switch {
		case r == 'l' || r == '|' || r == 'I':
			b.WriteByte('l') // these three are one to UTS #39
		case 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9':
			b.WriteRune(r)
		case 0x300 <= r && r < 0x370:
		default:
			return ""
		}
	}
	return b.String()
}
