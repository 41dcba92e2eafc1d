package backup

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/migrations"
)

// Source opens a backup from its start. It is read more than once.
type Source func() (io.ReadCloser, error)

// Restore puts a backup into a home and a store that have nothing of it yet. The
// store is opened when the backup was read and the home has room for it, and is
// looked at before anything is written. Files come before rows, because the keys
// open what is in the store. What fails half-way can be done again: files that are
// back already are as they should be.
func Restore(ctx context.Context, src Source, h home.Home, open func() (state.DB, error)) (s Summary, err error) {
	files, s, err := read(src, h)
	if err != nil {
		return s, err
	}
	db, err := open()
	if err != nil {
		return s, err
	}
	defer db.Close()
	if err := db.Read(ctx, empty); err != nil {
		return s, err
	}
	if s.Files, err = put(files, h.Dir(), os.Rename); err == nil {
		s.Rows, err = rows(ctx, src, db, s.Schema)
	}
	if err != nil && s.Files > 0 {
		err = fmt.Errorf("%w: %w", ErrHalf, err)
	}
	return s, err
}

// file is one of a home.
type file struct {
	rel   string
	mode  fs.FileMode
	text  []byte
	there bool // as it should be
}

// read reads the files of a backup for a home that has none of them, or the same.
// They stand in the order in which they come back: rules before what they hold
// back, and the keys last, so that nothing is served without its rules, however
// much is there.
func read(src Source, h home.Home) (files []file, s Summary, err error) {
	found := map[string]file{}
	s.About, err = walk(src, func(h *tar.Header, r io.Reader) error {
		if strings.HasPrefix(h.Name, "store/") {
			return nil
		}
		rel, err := place(h.Name)
		if err != nil {
			return err
		}
		if h.Size > maxFile {
			return fmt.Errorf("%w: %s is too large", ErrFormat, h.Name)
		}
		text, err := io.ReadAll(r)
		found[rel] = file{rel: rel, mode: mode(fs.FileMode(h.Mode)), text: text}
		return err
	})
	if err != nil {
		return nil, s, err
	}
	for rel, f := range found {
		have, err := os.ReadFile(filepath.Join(h.Dir(), rel))
		if err == nil && !bytes.Equal(have, f.text) {
			return nil, s, fmt.Errorf("%w: %s", ErrNotEmpty, filepath.Join(h.Dir(), rel))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, s, err
		}
		f.there = err == nil
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b file) int {
		return cmp.Or(cmp.Compare(rank(b.rel), rank(a.rel)), cmp.Compare(a.rel, b.rel))
	})
	return files, s, nil
}

// rank is the place of a file among those that are kept; -1 if it is none of them.
func rank(rel string) int {
	rel = filepath.ToSlash(rel)
	return slices.IndexFunc(kept, func(name string) bool { return rel == name || strings.HasPrefix(rel, name+"/") })
}

// put puts files into a home, one after the other, and says how many are there.
// Each is written elsewhere before the first of them appears: none is there in part,
// and a folder has nothing that is not the backup's, whenever it ends. What is there
// already is not touched: keys may lie on a volume that cannot be written.
func put(files []file, dir string, move func(from, to string) error) (done int, err error) {
	dir = filepath.Clean(dir)
	staged := filepath.Join(dir, "restore.part")
	if err := os.RemoveAll(staged); err != nil { // of one that was broken off
		return 0, err
	}
	defer os.RemoveAll(staged)
	for _, f := range files {
		if f.there {
			continue
		}
		to := filepath.Join(staged, f.rel)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return 0, err
		}
		if err := home.Replace(to, f.mode, f.text); err != nil {
			return 0, err
		}
	}
	for _, f := range files {
		if f.there {
			done++
			continue
		}
		to := filepath.Join(dir, f.rel)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return done, err
		}
		err := move(filepath.Join(staged, f.rel), to)
		if otherVolume(err) {
			err = home.Replace(to, f.mode, f.text)
		}
		if err != nil {
			return done, err
		}
		done++
		for to != dir { // the next one only when this one lasts
			to = filepath.Dir(to)
			if err := home.SyncFolder(to); err != nil {
				return done, err
			}
		}
	}
	return done, nil
}

// otherVolume reports whether a file could not be moved because its new place, a
// folder of the home, is a volume of its own.
func otherVolume(err error) bool {
	const notSameDevice = syscall.Errno(17) // what Windows says
	return errors.Is(err, syscall.EXDEV) || runtime.GOOS == "windows" && errors.Is(err, notSameDevice)
}

// rows puts the rows of a backup into a store that has no records, all or none. They
// are of the backup's own schema: steps only add, and what they add may be left out.
func rows(ctx context.Context, src Source, db state.DB, schema int) (n int64, err error) {
	steps := migrations.List()
	tables := map[string]migrations.Table{}
	for _, t := range migrations.Tables(steps[:schema]) {
		tables[t.Name] = t
	}
	err = db.Write(ctx, func(tx state.Tx) error {
		n = 0
		if err := empty(tx); err != nil {
			return err
		}
		for _, t := range migrations.Tables(steps) { // what every store has
			if _, err := tx.Exec(`DELETE FROM ` + t.Name); err != nil {
				return err
			}
		}
		_, err := walk(src, func(h *tar.Header, r io.Reader) error {
			rest, ok := strings.CutPrefix(h.Name, "store/")
			if !ok {
				return nil
			}
			table, _, _ := strings.Cut(rest, "/")
			t, ok := tables[table]
			if !ok || h.Size > int64(pageSize+maxRow) {
				return fmt.Errorf("%w: %q", ErrFormat, h.Name)
			}
			return insert(tx, t, r, &n)
		})
		return err
	})
	return n, err
}

// empty fails if a store has something to lose, or somebody who may be about to
// write to it under a root of their own.
func empty(tx state.Tx) error {
	for _, table := range [][2]string{{"leaves", "a journal"}, {"calls", "calls"}, {"approvals", "approvals"}, {"api_keys", "API keys"}, {"begun", "a root key already"}} {
		var n int64
		err := tx.Query(`SELECT count(*) FROM `+table[0], nil, func(r state.Row) error { return r.Scan(&n) })
		if err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("%w: the store has %s", ErrNotEmpty, table[1])
		}
	}
	return nil
}

func insert(tx state.Tx, t migrations.Table, r io.Reader, rows *int64) error {
	var names, marks []string
	for i, c := range t.Columns {
		names, marks = append(names, c.Name), append(marks, fmt.Sprintf("$%d", i+1))
	}
	query := `INSERT INTO ` + t.Name + ` (` + strings.Join(names, ", ") + `) VALUES (` + strings.Join(marks, ", ") + `)`
	page, err := io.ReadAll(r) // no scanner: it looks through a long line anew at every read
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	for line := range bytes.Lines(page) {
		args, err := parse(t, line)
		if err != nil {
			return fmt.Errorf("%w: a row of %s: %w", ErrFormat, t.Name, err)
		}
		if _, err := tx.Exec(query, args...); err != nil {
			return err
		}
		*rows++
	}
	return nil
}

// walk reads a backup from its start, and says what it is.
func walk(src Source, each func(h *tar.Header, r io.Reader) error) (a About, err error) {
	f, err := src()
	if err != nil {
		return a, err
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		return a, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	in := tar.NewReader(zip)
	for first := true; ; first = false {
		h, err := in.Next()
		if err == io.EOF && !first {
			// The checksum stands behind the last byte, and is looked at with it.
			if _, err := io.ReadFull(zip, make([]byte, 1)); err != io.EOF {
				return a, fmt.Errorf("%w: its end: %w", ErrFormat, cmp.Or(err, errMore))
			}
			return a, nil
		}
		if err != nil {
			return a, fmt.Errorf("%w: %w", ErrFormat, err)
		}
		if h.Typeflag != tar.TypeReg {
			return a, fmt.Errorf("%w: %q is no plain file", ErrFormat, h.Name)
		}
		if !first {
			if err := each(h, in); err != nil {
				return a, err
			}
			continue
		}
		if h.Name != about || h.Size > 1<<16 || json.NewDecoder(in).Decode(&a) != nil || a.Format != format {
			return a, ErrFormat
		}
		if newest := len(migrations.List()); a.Schema < 1 || a.Schema > newest {
			return a, fmt.Errorf("%w: %w: it has schema %d, and this ambit %d. Restore it with ambit %s, or with a newer one",
				ErrFormat, ErrSchema, a.Schema, newest, a.Version)
		}
	}
}

var (
	errRow  = errors.New("it does not fit the table")
	errMore = errors.New("something follows it")
)

// parse reads a row.
func parse(t migrations.Table, line []byte) ([]any, error) {
	var values []json.RawMessage
	if err := json.Unmarshal(line, &values); err != nil || len(values) != len(t.Columns) {
		return nil, errRow
	}
	args := make([]any, len(values))
	for i, c := range t.Columns {
		if string(values[i]) == "null" {
			if !c.Null {
				return nil, errRow
			}
			continue
		}
		var err error
		switch c.Type {
		case "BIGINT":
			var n int64
			err = json.Unmarshal(values[i], &n)
			args[i] = n
		case "BYTEA":
			var s string
			if err = json.Unmarshal(values[i], &s); err == nil {
				args[i], err = base64.StdEncoding.DecodeString(s)
			}
		default:
			var s string
			err = json.Unmarshal(values[i], &s)
			args[i] = s
		}
		if err != nil {
			return nil, errRow
		}
	}
	return args, nil
}
