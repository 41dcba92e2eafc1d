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
	"strings"

	"github.com/ambit-run/ambit/internal/home"
	"github.com/ambit-run/ambit/internal/state"
	"github.com/ambit-run/ambit/internal/state/migrations"
)

// Source opens a backup from its start. It is read more than once.
type Source func() (io.ReadCloser, error)

// Files puts the files of a backup into a home that has none of them. They come
// first, because the keys open what is in the store.
func Files(src Source, h home.Home) (s Summary, err error) {
	type file struct {
		mode fs.FileMode
		text []byte
	}
	files := map[string]file{}
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
		files[rel] = file{mode(fs.FileMode(h.Mode)), text}
		return err
	})
	if err != nil {
		return s, err
	}
	for rel, f := range files {
		have, err := os.ReadFile(filepath.Join(h.Dir(), rel))
		if err == nil && !bytes.Equal(have, f.text) {
			return s, fmt.Errorf("%w: %s. Restore into a new AMBIT_HOME", ErrNotEmpty, filepath.Join(h.Dir(), rel))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return s, err
		}
	}
	for rel, f := range files {
		to := filepath.Join(h.Dir(), rel)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return s, err
		}
		if err := os.WriteFile(to, f.text, f.mode); err != nil {
			return s, err
		}
		s.Files++
	}
	return s, nil
}

// Rows puts the rows of a backup into a store that has no records.
func Rows(ctx context.Context, src Source, db state.DB) (rows int64, err error) {
	tables := map[string]migrations.Table{}
	for _, t := range migrations.Tables(migrations.List()) {
		tables[t.Name] = t
	}
	err = db.Write(ctx, func(tx state.Tx) error {
		rows = 0
		if err := clear(tx, tables); err != nil {
			return err
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
			return insert(tx, t, r, &rows)
		})
		return err
	})
	return rows, err
}

// clear empties a store that has nothing to lose.
func clear(tx state.Tx, tables map[string]migrations.Table) error {
	for _, name := range []string{"leaves", "calls", "approvals", "api_keys"} {
		var n int64
		err := tx.Query(`SELECT count(*) FROM `+name, nil, func(r state.Row) error { return r.Scan(&n) })
		if err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("%w: the store has %d rows of %s. Restore into a new store", ErrNotEmpty, n, name)
		}
	}
	for name := range tables {
		if _, err := tx.Exec(`DELETE FROM ` + name); err != nil {
			return err
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
		if newest := len(migrations.List()); a.Schema != newest {
			return a, fmt.Errorf("%w: it has schema %d, and this ambit %d. Restore it with ambit %s, whose store this one can then open",
				ErrFormat, a.Schema, newest, a.Version)
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
