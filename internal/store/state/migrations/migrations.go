// Package migrations contains the database schema as an append-only list of migrations, called steps.
//
// Each step is an SQL file for both engines. The version of a store is the number of applied steps. SQL that only
// SQLite needs is in a comment of the form /*sqlite … */. PostgreSQL ignores the comment, and the SQLite engine
// replaces the comment with its content. For a comment of the form /*sqlite! … */, it also removes the word before the
// comment. Each statement ends with a semicolon at the end of a line. No other line may end with a semicolon.
package migrations

import (
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/ambit-run/ambit/internal/store/state"
)

//go:embed *.sql
var files embed.FS

// List returns the SQL of each step, in order.
func List() []string {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		panic(err) // Glob never fails for this constant pattern
	}
	list := make([]string, len(names))
	for i, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			panic(err) // reading an embedded file never fails
		}
		list[i] = string(text)
	}
	return list
}

var (
	onlySQLite = regexp.MustCompile(`/\*sqlite (.*?) ?\*/`)
	inSQLite   = regexp.MustCompile(`\S+ /\*sqlite! (.*?) ?\*/`)
)

// SQLite returns the given steps as SQL for the SQLite engine.
func SQLite(list []string) []string {
	list = slices.Clone(list)
	for i, text := range list {
		list[i] = onlySQLite.ReplaceAllString(inSQLite.ReplaceAllString(text, "$1"), "$1")
	}
	return list
}

// Check reports whether a store of the given version lacks some of the given steps. If the store has more steps, a
// newer version of ambit has upgraded the store, and Check fails with ErrNewer.
func Check(version int64, list []string) (behind bool, err error) {
	if newest := int64(len(list)); version > newest {
		return false, fmt.Errorf("%w: the store has schema version %d, but this version of ambit supports "+
			"only versions up to %d", state.ErrNewer, version, newest)
	}
	return version < int64(len(list)), nil
}

// Version reads the version of a store from its schema_version table.
func Version(tx state.Tx) (version int64, err error) {
	err = tx.Query(`SELECT version FROM schema_version`, nil, func(row state.Row) error {
		return row.Scan(&version)
	})
	return version, err
}

// Run applies the given steps to a store, except the steps that were already applied. The caller must hold the lock
// that prevents simultaneous migrations.
func Run(tx state.Tx, list []string) error {
	if _, err := tx.Exec(`CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)`); err != nil {
		return err
	}
	version, err := Version(tx)
	if err != nil {
		return err
	}
	behind, err := Check(version, list)
	if err != nil || !behind {
		return err
	}
	for i, text := range list[version:] {
		for statement := range strings.SplitSeq(text, ";\n") {
			if strings.TrimSpace(statement) == "" {
				continue
			}
			if _, err := tx.Exec(statement); err != nil {
				return fmt.Errorf("schema step %d failed: %w", version+int64(i)+1, err)
			}
		}
	}
	if _, err := tx.Exec(`DELETE FROM schema_version`); err != nil {
		return err
	}
	_, err = tx.Exec(`INSERT INTO schema_version (version) VALUES ($1)`, int64(len(list)))
	return err
}
