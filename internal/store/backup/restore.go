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
	"strconv"
	"strings"
	"syscall"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/migrations"
)

// Source opens a backup for reading. Restore calls it more than once, and each call must start at the beginning of the
// backup.
type Source func() (io.ReadCloser, error)

// Restore restores a backup into a home and a store. Restore fails if the store contains data, or if the home contains
// a file with different content. Restore first reads the whole backup and checks the home. Then it calls the callback
// open and checks the store. Only then does it write anything. The files are written before the rows, because the store
// needs the keys. An interrupted restore can be repeated: files that already match the backup are accepted.
func Restore(ctx context.Context, src Source, h home.Home, open func() (state.DB, error)) (s Summary, err error) {
	files, s, err := readFiles(src, h)
	if err != nil {
		return s, err
	}
	db, err := open()
	if err != nil {
		return s, err
	}
	defer db.Close()
	if err := db.Read(ctx, checkEmpty); err != nil {
		return s, err
	}
	if s.Files, err = restoreFiles(files, h.Dir(), os.Rename); err == nil {
		s.Rows, err = restoreRows(ctx, src, db, s.Schema)
	}
	if err != nil && s.Files > 0 {
		err = fmt.Errorf("%w: %w", ErrHalf, err)
	}
	return s, err
}

// file is a file of the home, read from a backup.
type file struct {
	rel   string // the path relative to the home
	mode  fs.FileMode
	text  []byte
	there bool // whether the home already contains the file with the same content
}

// readFiles reads the files of a backup. It fails if the home contains one of the files with different content. The
// files are returned in the order in which they must be restored: the policy before the agents, and the keys last. A
// partly restored home therefore never serves an agent without the policy.
func readFiles(src Source, h home.Home) (files []file, s Summary, err error) {
	found := map[string]file{}
	s.About, err = walk(src, func(h *tar.Header, r io.Reader) error {
		if strings.HasPrefix(h.Name, "store/") {
			return nil
		}
		rel, err := entryPath(h.Name)
		if err != nil {
			return err
		}
		if h.Size > maxFile {
			return fmt.Errorf("%w: the file %s in the archive is too large", ErrFormat, strconv.Quote(h.Name))
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

// rank returns the index in homePaths of the path that contains the file, or -1.
func rank(rel string) int {
	rel = filepath.ToSlash(rel)
	return slices.IndexFunc(homePaths, func(name string) bool { return rel == name || strings.HasPrefix(rel, name+"/") })
}

// restoreFiles restores files one by one and returns how many of them the home now contains. All files are first
// written to a staging directory, so that an interruption leaves no incomplete file. Files that already exist are not
// written again, because the keys can be on a read-only volume.
func restoreFiles(files []file, dir string, move func(from, to string) error) (done int, err error) {
	dir = filepath.Clean(dir)
	staged := filepath.Join(dir, "restore.part")
	if err := os.RemoveAll(staged); err != nil { // an interrupted restore can leave this directory behind
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
		for to != dir { // the entries of the directories must be on disk before the next file is moved
			to = filepath.Dir(to)
			if err := home.SyncFolder(to); err != nil {
				return done, err
			}
		}
	}
	return done, nil
}

// otherVolume reports whether err means that a file could not be renamed because the new name is on another volume.
func otherVolume(err error) bool {
	const notSameDevice = syscall.Errno(17) // ERROR_NOT_SAME_DEVICE on Windows
	return errors.Is(err, syscall.EXDEV) || runtime.GOOS == "windows" && errors.Is(err, notSameDevice)
}

// restoreRows restores all rows in one transaction and returns the number of rows. The store must not contain data. The
// rows can have an older schema than the store, because migrations only add tables and optional columns.
func restoreRows(ctx context.Context, src Source, db state.DB, schema int) (n int64, err error) {
	steps := migrations.List()
	tables := map[string]migrations.Table{}
	for _, t := range migrations.Tables(steps[:schema]) {
		tables[t.Name] = t
	}
	err = db.Write(ctx, func(tx state.Tx) error {
		n = 0
		if err := checkEmpty(tx); err != nil {
			return err
		}
		for _, t := range migrations.Tables(steps) { // a new store already contains some rows, so delete them
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
				return fmt.Errorf("%w: the entry %q is for an unknown table, or is too large", ErrFormat, h.Name)
			}
			return insert(tx, t, r, &n)
		})
		return err
	})
	return n, err
}

// checkEmpty returns ErrNotEmpty if a store contains data or is already bound to a root key.
func checkEmpty(tx state.Tx) error {
	for _, table := range [][2]string{
		{"leaves", "a journal"},
		{"calls", "calls"},
		{"approvals", "approvals"},
		{"api_keys", "API keys"},
		{"begun", "a root key"},
	} {
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
	page, err := io.ReadAll(r) // a bufio.Scanner would scan a long line again after every read
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	for line := range bytes.Lines(page) {
		args, err := parse(t, line)
		if err != nil {
			return fmt.Errorf("%w: a row in the table %s is invalid: %w", ErrFormat, t.Name, err)
		}
		if _, err := tx.Exec(query, args...); err != nil {
			return err
		}
		*rows++
	}
	return nil
}

// walk reads a whole backup and returns its description. It calls the callback visit for each archive entry after the
// description.
func walk(src Source, visit func(h *tar.Header, r io.Reader) error) (a About, err error) {
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
			// The gzip reader verifies the checksum only at the end of the data.
			if _, err := io.ReadFull(zip, make([]byte, 1)); err != io.EOF {
				return a, fmt.Errorf("%w: the end of the archive is damaged: %w", ErrFormat, cmp.Or(err, errMore))
			}
			return a, nil
		}
		if err != nil {
			return a, fmt.Errorf("%w: %w", ErrFormat, err)
		}
		if h.Typeflag != tar.TypeReg {
			return a, fmt.Errorf("%w: %q is not a regular file", ErrFormat, h.Name)
		}
		if !first {
			if err := visit(h, in); err != nil {
				return a, err
			}
			continue
		}
		if h.Name != about || h.Size > 1<<16 || json.NewDecoder(in).Decode(&a) != nil || a.Format != format {
			return a, ErrFormat
		}
		if newest := len(migrations.List()); a.Schema < 1 || a.Schema > newest {
			return a, fmt.Errorf("%w: %w (%d). This version of ambit supports schema versions up to %d. "+
				"Restore the backup with ambit %s or newer", ErrFormat, ErrSchema, a.Schema, newest, a.Version)
		}
	}
}

var (
	errRow  = errors.New("the values do not match the columns of the table")
	errMore = errors.New("there is data after the archive")
)

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
