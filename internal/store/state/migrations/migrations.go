// Package migrations holds the schema, as a list of steps that are only ever
// added to.
//
// One text serves both engines. A store's version is the number of steps it has
// seen. What only SQLite needs stands in a comment /*sqlite … */, which
// PostgreSQL skips and the SQLite engine unwraps; /*sqlite! … */ stands for the
// word before it. A step ends each statement
// with a semicolon at the end of a line, and has no other semicolon there.
package migrations

import (
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/ambit-run/ambit/internal/store/state"
)

//go:embed *.sql
var files embed.FS

// List is the text of each step, in order.
func List() []string {
	names, err := fs.Glob(files, "*.sql") // sorted
	if err != nil {
		panic(err) // the pattern is a constant
	}
	list := make([]string, len(names))
	for i, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			panic(err) // it is part of this program
		}
		list[i] = string(text)
	}
	return list
}

var (
	onlySQLite = regexp.MustCompile(`/\*sqlite (.*?) ?\*/`)
	inSQLite   = regexp.MustCompile(`\S+ /\*sqlite! (.*?) ?\*/`)
)

// SQLite is the list for SQLite.
func SQLite(list []string) []string {
	own := make([]string, len(list))
	for i, text := range list {
		own[i] = onlySQLite.ReplaceAllString(inSQLite.ReplaceAllString(text, "$1"), "$1")
	}
	return own
}

// Check says whether a store of some version needs steps of list, or is newer
// than all of them.
func Check(version int64, list []string) (behind bool, err error) {
	if newest := int64(len(list)); version > newest {
		return false, fmt.Errorf("%w: it has schema %d, this ambit knows %d. Use the newer ambit, or another store",
			state.ErrNewer, version, newest)
	}
	return version < int64(len(list)), nil
}

// Version reads the version of a store that has a version table.
func Version(tx state.Tx) (version int64, err error) {
	err = tx.Query(`SELECT version FROM schema_version`, nil, func(row state.Row) error {
		return row.Scan(&version)
	})
	return version, err
}

// Run takes a store through the steps it has not seen. The caller holds the
// lock that keeps others from doing the same.
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
