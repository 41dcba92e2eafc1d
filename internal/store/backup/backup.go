// Package backup copies a home and its store into one file, and restores them.
//
// A backup is a compressed tar archive: a description (backup.json), the rows of every
// table as JSON lines, and the files of the home that cannot be recreated: keys, the vault,
// agents, pins and downloads of registries, policy, guardrails and settings. Rows are read
// from one snapshot, so a daemon may keep running. The format is independent of the engine:
// a backup of SQLite can be restored into PostgreSQL, which is how to move from one machine
// to many.
//
// A backup contains the keys, so its holder can sign a journal and open sealed data. It is
// therefore encrypted with age, to a passphrase or to recipients, unless the operator
// explicitly asks for a plain one.
//
// Restore is all or nothing for the store: one transaction, and only into a store without
// records. Files are restored one by one, the policy first and the keys last, and an
// interrupted restore can be repeated. Calls that were in progress are restored with a dead
// owner, so recovery treats them as after a crash.
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
	// pageSize is the size at which an archive entry of a table ends.
	pageSize = 1 << 20
	// maxFile bounds a file of the home.
	maxFile = 64 << 20
)

// maxRow bounds an encoded row, by which a page may exceed its size. The largest row is a
// program's result: 16 MiB, stored twice, six times as long if JSON escapes all of it, and
// a third longer in base64. Tests make it smaller.
var maxRow = 320 << 20

// About describes a backup.
type About struct {
	Format  int       `json:"format"`
	Version string    `json:"version"`
	Made    time.Time `json:"made"`
	Schema  int       `json:"schema"`
}

// Summary describes what was copied.
type Summary struct {
	About
	Rows  int64 `json:"rows"`
	Files int   `json:"files"`
	// LeftOut lists links and other entries that are not regular files.
	LeftOut []string `json:"left_out,omitempty"`
}

// kept lists the files and directories of a home that are backed up, in the reverse order
// of their restore. All others can be recreated, or belong to a running process.
var kept = []string{
	"keys", "secrets", "agents", "registry/given", "registry/pins", "policy.cedar",
	"policy.cedarschema", "guardrails.json", "config.toml", "catalog.json",
}

// Errors that callers distinguish.
var (
	// ErrNotEmpty means that the store or the home already contains data.
	ErrNotEmpty = errors.New("it already contains data")
	// ErrHalf means that some files were restored, and no rows.
	ErrHalf = errors.New("only files were restored")
	// ErrFormat means that a file is not a backup that this ambit can read.
	ErrFormat = errors.New("this is not a backup that this ambit can read")
	// ErrSchema means, together with ErrFormat, that another version of ambit can read it.
	ErrSchema = errors.New("its store has another version")
)

// errRotated means that the keys may not match the rows.
var errRotated = errors.New("the root key was rotated during the backup: make the backup again")

// Write copies a home and its store.
func Write(ctx context.Context, w io.Writer, h home.Home, db state.DB, version string) (Summary, error) {
	steps := migrations.List()
	made := time.Now().UTC().Truncate(time.Second)
	s := Summary{About: About{Format: format, Version: version, Made: made, Schema: len(steps)}}
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
	// Rows and keys must match, and are not read at the same time.
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
	err := a.WriteHeader(&tar.Header{
		Name: name, Mode: int64(mode), Size: int64(len(text)), ModTime: a.made, Format: tar.FormatPAX,
	})
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
		if err := row.Scan(r.into...); err != nil {
			return err
		}
		line, err := json.Marshal(r.values())
		if err != nil {
			return err
		}
		if len(line) >= maxRow {
			return fmt.Errorf("an encoded row has %d bytes, and a restore accepts less than %d", len(line), maxRow)
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

// reader reads the rows of a table. NULL is distinguished from the zero value by an extra
// column.
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

// home writes the files of a home. Links are not followed: they could lead anywhere. Only
// the top directories that ambit creates may be links, because operators mount volumes
// that way.
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
				return nil // a daemon has renamed it
			}
			if err != nil {
				return err
			}
			if len(text) > maxFile {
				return fmt.Errorf("%s is too large for a backup: the limit is %d MiB", file, maxFile>>20)
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

// leadsTo resolves links if a name leads to a directory. Otherwise it returns the name.
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

// mode returns the permissions that a backup preserves: only whether the owner may execute
// the file, which an agent's entry needs.
func mode(m fs.FileMode) fs.FileMode { return 0o600 | m&0o100 }

// place returns the path of a file in the home. Names in a backup are not trusted: only
// names that Write produces are accepted.
func place(name string) (string, error) {
	rel, ok := strings.CutPrefix(name, "home/")
	if !ok || !filepath.IsLocal(rel) || path.Clean(rel) != rel || strings.Contains(rel, `\`) || rank(rel) < 0 {
		return "", fmt.Errorf("%w: it contains the unexpected file %s", ErrFormat, strconv.Quote(name))
	}
	return filepath.FromSlash(rel), nil
}
