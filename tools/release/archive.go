package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// entry is a file in an archive. owner is the id of the user who owns the file; 0 is root.
type entry struct {
	name  string
	body  []byte
	mode  int64
	link  string // the target, if the entry is a symbolic link
	dir   bool
	owner int
}

func file(name string, body []byte) entry    { return entry{name: name, body: body, mode: 0o644} }
func program(name string, body []byte) entry { return entry{name: name, body: body, mode: 0o755} }

// tarOf returns a tar archive with the entries, sorted by name, and the folders that contain the entries. All files
// get the same modification time, so equal entries always result in the same bytes.
func tarOf(entries []entry, made time.Time) ([]byte, error) {
	all := slices.Clone(entries)
	have := map[string]bool{}
	for _, e := range entries {
		have[e.name] = true
	}
	for _, e := range entries {
		for d := path.Dir(e.name); d != "." && d != "/" && !have[d]; d = path.Dir(d) {
			have[d] = true
			all = append(all, entry{name: d, mode: 0o755, dir: true})
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range all {
		h := tar.Header{
			Name: e.name, Mode: e.mode, ModTime: made, Size: int64(len(e.body)), Uid: e.owner, Gid: e.owner,
			Typeflag: tar.TypeReg, Format: tar.FormatPAX,
		}
		switch {
		case e.dir:
			h.Typeflag, h.Name = tar.TypeDir, e.name+"/"
		case e.link != "":
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.link, 0o777
		}
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.body); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// tarGz returns the archive of tarOf, compressed with gzip. The gzip header contains no file name and no time.
func tarGz(entries []entry, made time.Time) ([]byte, error) {
	text, err := tarOf(entries, made)
	if err != nil {
		return nil, err
	}
	return gz(text)
}

func gz(text []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}

// arOf returns an ar archive, which is the format of Debian packages.
func arOf(entries []entry, made time.Time) []byte {
	out := bytes.NewBufferString("!<arch>\n")
	for _, e := range entries {
		fmt.Fprintf(out, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", e.name, made.Unix(), 0, 0, "100644", len(e.body))
		out.Write(e.body)
		if len(e.body)%2 == 1 {
			out.WriteByte('\n')
		}
	}
	return out.Bytes()
}
