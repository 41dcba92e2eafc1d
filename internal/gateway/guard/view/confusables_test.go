package view

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
)

var source = flag.String("confusables", "", "write confusables.txt.gz from this `file`, Unicode's confusables.txt")

// confusables selects rows from Unicode's table of look-alikes (UTS #39). It returns the rows that map a character
// to ASCII letters and digits. It leaves out rows that decomposition already resolves.
func confusables(table io.Reader) ([]byte, error) {
	var lines []string
	sc := bufio.NewScanner(table)
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
		return nil, err // with an incomplete table, look-alikes would not be recognized
	}
	slices.Sort(lines)
	return []byte("# From Unicode's confusables.txt, version 17.0.0, Copyright (c) 1991-2025 Unicode, Inc., " +
		"Unicode License V3\n" + strings.Join(lines, "")), nil
}

// The table contains characters that look like ASCII letters and digits and do not decompose into them. With the flag
// -confusables, the test also writes the table.
func TestConfusables(t *testing.T) {
	got, err := confusables(strings.NewReader(strings.Join([]string{
		"# a comment",
		"",
		"0430 ;	0061 ;	MA	# а → a, of another alphabet",
		"2C9F ;	006F ;	MA	# ⲟ → o",
		"0499 ;	0064 0301 ;	MA	# an accent is left out",
		"01C0 ;	006C ;	MA	# ǀ → l",
		"0406 ;	0049 ;	MA	# І → I, which looks like l",
		"FF41 ;	0061 ;	MA	# ａ decomposes into a",
		"0061 ;	0430 ;	MA	# from ASCII",
		"05D0 ;	2135 ;	MA	# to no letter",
		"0041 0042 ;	0061 ;	MA	# from two characters",
		"not a line",
	}, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(string(got), "\n")
	if want := "1c0 l\n2c9f o\n406 l\n430 a\n499 d\n"; rows != want {
		t.Errorf("the table is %q, want %q", rows, want)
	}
	for _, text := range []string{"0430 ;	letter ;	MA\n", "0430 ;	0061 \xff ;	MA\n"} {
		if got, err := confusables(strings.NewReader(text)); err == nil {
			t.Errorf("%q: the table is %q, want an error", text, got)
		}
	}
	if *source != "" {
		write(t, *source)
	}
}

func write(t *testing.T, from string) {
	t.Helper()
	file, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	table, err := confusables(file)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if _, err := z.Write(table); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("confusables.txt.gz", packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
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

// ascii converts s to ASCII letters and digits. It returns "" if that is not possible.
func ascii(s string) string {
	var b strings.Builder
	for _, r := range norm.NFKD.String(s) {
		switch {
		case r == 'l' || r == '|' || r == 'I':
			b.WriteByte('l') // UTS #39 treats l, | and I as equal
		case 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9':
			b.WriteRune(r)
		case 0x300 <= r && r < 0x370:
		default:
			return ""
		}
	}
	return b.String()
}
