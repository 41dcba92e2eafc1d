// Package migrations contains the schema as an append-only list of steps.
//
// Both engines use the same text. A store's version is the number of steps applied to it.
// SQL for SQLite alone is in a comment /*sqlite … */, which PostgreSQL skips and the SQLite
// engine unwraps; /*sqlite! … */ replaces the word before it. Each statement ends with a
// semicolon at the end of a line, and no other line ends with one.
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

// List returns the text of each step, in order.
func List() []string {
	names, err := fs.Glob(files, "*.sql") // sorted
	if err != nil {
		panic(err) // the pattern is a constant
	}
	list := make([]string, len(names))
	for i, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			panic(err) // the file is embedded
		}
		list[i] = string(text)
	}
	return list
}

var (
	onlySQLite = regexp.MustCompile(`/\*sqlite (.*?) ?\*/`)
	inSQLite   = regexp.MustCompile(`\S+ /\*sqlite! (.*?) ?\*/`)
)

// SQLite returns the list for SQLite.
func SQLite(list []string) []string {
	list = slices.Clone(list)
	for i, text := range list {
		list[i] = onlySQLite.ReplaceAllString(inSQLite.ReplaceAllString(text, "$1"), "$1")
	}
	return list
}

// Check reports whether a store of the given version is behind list. A store that is
// newer than list is an error.
func Check(version int64, list []string) (behind bool, err error) {
	if newest := int64(len(list)); version > newest {
		return false, fmt.Errorf("%w: it has schema %d, this ambit supports %d. Use the newer ambit, or another store",
			state.ErrNewer, version, newest)
	}
	return version < int64(len(list)), nil
}

// Version returns the version of a store that has a version table.
func Version(tx state.Tx) (version int64, err error) {
	err = tx.Query(`SELECT version FROM schema_version`, nil, func(row state.Row) error {
		return row.Scan(&version)
	})
	return version, err
}

// Run applies the missing steps to a store. The caller holds the lock that excludes other
// migrations.
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
				return fmt.Errorf("schema step %d: %w", version+int64(i)+1, err)
			}
		}
	}
	if _, err := tx.Exec(`DELETE FROM schema_version`); err != nil {
		return err
	}
	_, err = tx.Exec(`INSERT INTO schema_version (version) VALUES ($1)`, int64(len(list)))
	return err
}
