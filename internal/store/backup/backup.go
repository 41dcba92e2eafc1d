// Package backup copies a home and its store into one file, and restores them.
//
// A backup is a compressed tar archive. The first entry, backup.json, describes the backup. The next entries contain
// the rows of every table as JSON lines. The last entries are the files of the home that cannot be recreated, such as
// keys, agents, the policy and the settings. All rows come from one snapshot, so a daemon can keep running during the
// backup. The format does not depend on the database engine. Operators can move from SQLite to PostgreSQL by
// restoring a backup.
//
// A backup contains the keys. Anyone who can read the keys can sign the journal and decrypt stored data. A backup is
// therefore encrypted with age, unless the operator explicitly asks for an unencrypted backup.
//
// Restore writes all rows in one transaction, and only into a store without data. Restore writes the files one by
// one, the settings and the policy first and the keys last. An interrupted restore can be repeated. Calls that were
// in progress are restored with a dead owner. Recovery then treats the calls as it does after a crash.
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
	// pageSize is the size in bytes after which a table's rows continue in a new archive entry.
	pageSize = 1 << 20
	// maxFile is the maximum size of a file in the home, in bytes.
	maxFile = 64 << 20
)

// maxRow limits the size of an encoded row, in bytes. A page can exceed pageSize by one row. The largest row contains a
// 16 MiB program result twice. JSON escaping can make each copy six times as long, and base64 adds a third. Tests set a
// lower limit.
var maxRow = 320 << 20

// About describes a backup.
type About struct {
	Format  int       `json:"format"`
	Version string    `json:"version"`
	Made    time.Time `json:"made"`
	Schema  int       `json:"schema"`
}

// Summary describes what Write or Restore copied.
type Summary struct {
	About
	Rows  int64 `json:"rows"`
	Files int   `json:"files"`
	// LeftOut lists the links and other special files that were not backed up.
	LeftOut []string `json:"left_out,omitempty"`
}

// homePaths lists the paths that a backup copies from a home. Restore writes them in reverse order. All other files can
// be recreated, or belong to a running process.
var homePaths = []string{
	"keys", "secrets", "agents", "registry/given", "registry/pins", "policy.cedar",
	"policy.cedarschema", "guardrails.json", "config.toml", "catalog.json",
}

// Errors that callers distinguish.
var (
	// ErrNotEmpty means that the store or the home already contains data.
	ErrNotEmpty = errors.New("the home or the store already contains data")
	// ErrHalf means that Restore restored some files but no rows.
	ErrHalf = errors.New("only some files were restored, and the store is still empty")
	// ErrFormat means that a file is not a backup, or that this version of ambit cannot read the backup.
	ErrFormat = errors.New("this is not a backup that this version of ambit can read")
	// ErrSchema means that the schema of the backup is unknown to this version of ambit. Errors that wrap ErrSchema
	// also wrap ErrFormat.
	ErrSchema = errors.New("the backup has an unsupported schema version")
)

// errRotated means that the root key changed during the backup, so the keys might not match the rows.
var errRotated = errors.New("the root key was rotated during the backup: make the backup again")

// Write writes a backup of the home h and its store db to w. Write also records the version of ambit in the backup.
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
		err = out.writeFile(about, 0o600, text)
	}
	if err != nil {
		return s, err
	}
	err = db.Read(ctx, func(tx state.Tx) error {
		for _, t := range migrations.Tables(steps) {
			if err := out.writeTable(tx, t, &s.Rows); err != nil {
				return fmt.Errorf("table %s: %w", t.Name, err)
			}
		}
		return nil
	})
	if err != nil {
		return s, err
	}
	if err := out.writeHome(h.Dir(), &s); err != nil {
		return s, err
	}
	// The rows and the keys are read at different times, so they match only if the root key did not change in between.
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

func (a *archive) writeFile(name string, mode fs.FileMode, text []byte) error {
	err := a.WriteHeader(&tar.Header{
		Name: name, Mode: int64(mode), Size: int64(len(text)), ModTime: a.made, Format: tar.FormatPAX,
	})
	if err != nil {
		return err
	}
	_, err = a.Write(text)
	return err
}

// writeTable writes the rows of a table as JSON arrays. Each archive entry contains about pageSize bytes of rows.
// writeTable adds the number of rows to *rows.
func (a *archive) writeTable(tx state.Tx, t migrations.Table, rows *int64) error {
	r := newReader(t)
	var page bytes.Buffer
	number := 0
	flush := func() error {
		defer page.Reset()
		number++
		return a.writeFile(fmt.Sprintf("store/%s/%08d.jsonl", t.Name, number), 0o600, page.Bytes())
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
			return fmt.Errorf("an encoded row has %d bytes, but a restore accepts only rows smaller than %d bytes",
				len(line), maxRow)
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

// reader reads the rows of a table. For each column that can be NULL, the query selects an additional column that
// distinguishes NULL from the zero value.
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
			out[i] = slices.Concat([]byte{}, *v) // the copy is never nil, because JSON encodes a nil slice as null
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

// writeHome writes the files of a home. Links are not followed, because a link could point outside the home. The
// directories in homePaths are an exception, because some operators link them to other volumes.
func (a *archive) writeHome(dir string, s *Summary) error {
	for _, name := range homePaths {
		top, err := resolveDir(filepath.Join(dir, name))
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
				return nil // a daemon has renamed or removed the file
			}
			if err != nil {
				return err
			}
			if len(text) > maxFile {
				return fmt.Errorf("%s is too large for a backup: the limit is %d MiB", file, maxFile>>20)
			}
			s.Files++
			return a.writeFile(path.Join("home", filepath.ToSlash(rel)), mode(info.Mode()), text)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// resolveDir resolves the symbolic links in name if name refers to a directory. Otherwise, it returns name unchanged.
func resolveDir(name string) (string, error) {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return name, nil
	}
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(name)
}

// mode returns the permissions that a file gets in a backup. The owner can read and write the file. The owner's execute
// permission is preserved, because some agents contain an executable file.
func mode(m fs.FileMode) fs.FileMode { return 0o600 | m&0o100 }

// entryPath converts the name of an archive entry to a path relative to the home. Archives are not trusted, so
// entryPath accepts only names that Write can produce.
func entryPath(name string) (string, error) {
	rel, ok := strings.CutPrefix(name, "home/")
	if !ok || !filepath.IsLocal(rel) || path.Clean(rel) != rel || strings.Contains(rel, `\`) || rank(rel) < 0 {
		return "", fmt.Errorf("%w: the archive contains the unexpected file %s", ErrFormat, strconv.Quote(name))
	}
	return filepath.FromSlash(rel), nil
}
