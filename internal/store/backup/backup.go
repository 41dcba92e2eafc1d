// Package backup copies what an ambit keeps into one file, and back.
//
// A backup is a compressed tar archive: what it is (backup.json), the rows of
// every table as JSON lines, and the files of the home that cannot be made
// again: keys, the vault, agents, what registries gave and packages were when they
// were first used, policy, rails and settings. Rows are read on one snapshot, so a
// daemon may go on working. They are written in a form that knows no engine: a
// backup of SQLite can be restored into PostgreSQL, which is how one machine
// becomes many.
//
// Whoever has a backup has the keys, and so can sign a journal and open what is
// sealed. So it is encrypted with age, to a passphrase or to recipients, unless
// somebody insists.
//
// Restore is all or nothing for the store: one transaction, and only into a
// store that has no records. Files come back one by one, the rules first and the
// keys last, and a restore that was broken off can be done again. Calls that were
// under way come back with an owner that is dead, and recovery deals with them as
// after any crash.
package backup

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/migrations"
)

const (
	format = 1
	about  = "backup.json"
	// pageSize is how much of a table one entry of the archive holds.
	pageSize = 1 << 20
	// maxFile bounds a file of the home.
	maxFile = 64 << 20
)

// maxRow bounds a row as it is written, which is what a page has beyond its size.
// The largest is a program's answer: 16 MiB that a result holds twice, six times as
// long if JSON escapes all of it, and a third longer in base64. A test makes it less.
var maxRow = 320 << 20

// About says what a backup holds.
type About struct {
	Format  int       `json:"format"`
	Version string    `json:"version"`
	Made    time.Time `json:"made"`
	Schema  int       `json:"schema"`
}

// Summary is what was copied.
type Summary struct {
	About
	Rows  int64 `json:"rows"`
	Files int   `json:"files"`
	// LeftOut are links, and whatever else is no plain file, where files are kept.
	LeftOut []string `json:"left_out,omitempty"`
}

// The files and folders of a home that go along, and come back in the opposite
// order. What is not named here can be made again, or belongs to a process that runs.
var kept = []string{"keys", "secrets", "agents", "registry/given", "registry/pins", "policy.cedar", "policy.cedarschema", "guardrails.json", "config.toml", "catalog.json"}

// Errors that callers tell apart.
var (
	// ErrNotEmpty says that the store or the home already has what would be
	// restored.
	ErrNotEmpty = errors.New("there is something already")
	// ErrHalf says that some files are back, and no rows.
	ErrHalf = errors.New("only files are back")
	// ErrFormat says that a file is no backup, or not one of this ambit's.
	ErrFormat = errors.New("this is no backup that this ambit can read")
	// ErrSchema says, beside ErrFormat, that it is whole but for another ambit.
	ErrSchema = errors.New("its store is of another version")
)

// errRotated says that the keys may not be those of the rows.
var errRotated = errors.New("the root key was rotated meanwhile: make the backup again")

// Write copies a home and its store.
func Write(ctx context.Context, w io.Writer, h home.Home, db state.DB, version string) (Summary, error) {
	steps := migrations.List()
	s := Summary{About: About{Format: format, Version: version, Made: time.Now().UTC().Truncate(time.Second), Schema: len(steps)}}
	zip := gzip.NewWriter(w)
	out := &archive{tar.NewWriter(zip), s.Made}
	root, err := os.ReadFile(h.Root())
	if err != nil {
		return s, err
	}
	text, err := json.Marshal(s.About)
	if err == nil {
		err = out.file(about, 0o600, text)
	}
	if err != nil {
		return s, err
	}
	err = db.Read(ctx, func(tx state.Tx) error {
		for _, t := range migrations.Tables(steps) {
			if err := out.table(tx, t, &s.Rows); err != nil {
				return fmt.Errorf("table %s: %w", t.Name, err)
			}
		}
		return nil
	})
	if err != nil {
		return s, err
	}
	if err := out.home(h.Dir(), &s); err != nil {
		return s, err
	}
	// Rows and keys are not read at once, and belong together.
	if now, err := os.ReadFile(h.Root()); err != nil || !bytes.Equal(now, root) {
		return s, cmp.Or(err, errRotated)
	}
	return s, errors.Join(out.Close(), zip.Close())
}

// archive is a backup that is being written.
type archive struct {
	*tar.Writer
	made time.Time
}

func (a *archive) file(name string, mode fs.FileMode, text []byte) error {
	err := a.WriteHeader(&tar.Header{Name: name, Mode: int64(mode), Size: int64(len(text)), ModTime: a.made, Format: tar.FormatPAX})
	if err != nil {
		return err
	}
	_, err = a.Write(text)
	return err
}

// table writes rows as JSON arrays, a page at a time.
func (a *archive) table(tx state.Tx, t migrations.Table, rows *int64) error {
	r := newReader(t)
	var page bytes.Buffer
	number := 0
	flush := func() error {
		defer page.Reset()
		number++
		return a.file(fmt.Sprintf("store/%s/%08d.jsonl", t.Name, number), 0o600, page.Bytes())
	}
	err := tx.Query(r.query, nil, func(row state.Row) error {
		if err := r.scan(row); err != nil {
			return err
		}
		line, err := json.Marshal(r.values())
		if err != nil {
			return err
		}
		if len(line) >= maxRow {
			return fmt.Errorf("a row has %d bytes as a backup holds it, and a restore takes less than %d", len(line), maxRow)
		}
		page.Write(append(line, '\n'))
		*rows++
		if page.Len() < pageSize {
			return nil
		}
		return flush()
	})
	if err == nil && page.Len() > 0 {
		err = flush()
	}
	return err
}

// reader reads the rows of a table, NULLs too.
type reader struct {
	query string
	table migrations.Table
	into  []any
}

func newReader(t migrations.Table) *reader {
	r := &reader{table: t}
	var columns []string
	for _, c := range t.Columns {
		columns = append(columns, c.Name)
		switch c.Type {
		case "BIGINT":
			r.into = append(r.into, new(int64))
		case "BYTEA":
			r.into = append(r.into, new([]byte))
		default:
			r.into = append(r.into, new(string))
		}
	}
	for _, c := range t.Columns {
		if c.Null {
			columns = append(columns, "CAST(CASE WHEN "+c.Name+" IS NULL THEN 1 ELSE 0 END AS BIGINT)")
			r.into = append(r.into, new(int64))
		}
	}
	r.query = "SELECT " + strings.Join(columns, ", ") + " FROM " + t.Name
	return r
}

func (r *reader) scan(row state.Row) error { return row.Scan(r.into...) }

func (r *reader) values() []any {
	out := make([]any, len(r.table.Columns))
	null := len(out)
	for i, c := range r.table.Columns {
		switch v := r.into[i].(type) {
		case *int64:
			out[i] = *v
		case *[]byte:
			out[i] = slices.Concat([]byte{}, *v) // empty is not NULL
		case *string:
			out[i] = *v
		}
		if c.Null {
			if *r.into[null].(*int64) == 1 {
				out[i] = nil
			}
			null++
		}
	}
	return out
}

// home writes the files that go along. A link is not followed: it could lead to
// anything, and what it leads to may be the work of another backup. Only the
// folders that ambit makes may be links: they are where somebody has their volume.
func (a *archive) home(dir string, s *Summary) error {
	for _, name := range kept {
		top, err := leadsTo(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		err = filepath.WalkDir(top, func(file string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || d.IsDir() {
				return err
			}
			rel, err := filepath.Rel(top, file)
			if err != nil {
				return err
			}
			rel = filepath.Join(name, rel)
			if !d.Type().IsRegular() {
				s.LeftOut = append(s.LeftOut, rel)
				return nil
			}
			info, err := d.Info()
			var text []byte
			if err == nil {
				text, err = os.ReadFile(file)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil // a daemon was about to rename it
			}
			if err != nil {
				return err
			}
			if len(text) > maxFile {
				return fmt.Errorf("%s is larger than a backup takes", file)
			}
			s.Files++
			return a.file(path.Join("home", filepath.ToSlash(rel)), mode(info.Mode()), text)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// leadsTo is the folder that a name leads to, also by links; the name itself if it
// leads to none.
func leadsTo(name string) (string, error) {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return name, nil
	}
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(name)
}

// mode is what is kept of a file's permissions: whether its owner may run it, as an
// agent's entry must be.
func mode(m fs.FileMode) fs.FileMode { return 0o600 | m&0o100 }

// place is where a file of a backup belongs; it may be anything, so only what
// Write would have written is taken.
func place(name string) (string, error) {
	rel, ok := strings.CutPrefix(name, "home/")
	if !ok || !filepath.IsLocal(rel) || path.Clean(rel) != rel || strings.Contains(rel, `\`) || rank(rel) < 0 {
		return "", fmt.Errorf("%w: it names the file %s", ErrFormat, strconv.Quote(name))
	}
	return filepath.FromSlash(rel), nil
}
