package migrations

import (
	"regexp"
	"strings"
)

// Table describes a table of the schema. It is used by code that copies a store.
type Table struct {
	Name    string
	Columns []Column
}

// Column is a column of a table. Type is TEXT, BIGINT or BYTEA.
type Column struct {
	Name, Type string
	Null       bool // whether the column can be NULL
}

var (
	create = regexp.MustCompile(`(?s)CREATE TABLE (\w+) \((.*?)\n\)`)
	column = regexp.MustCompile(`(?m)^\t(\w+)\s+(TEXT|BIGINT|BYTEA)\b(.*?),?$`)
	added  = regexp.MustCompile(`ALTER TABLE (\w+) ADD COLUMN (\w+)\s+(TEXT|BIGINT|BYTEA)\b(.*);`)
	marks  = regexp.MustCompile(`(?s)/\*.*?\*/`)
)

// Tables returns the tables that the given steps create, in order of creation.
func Tables(list []string) (tables []Table) {
	at := map[string]int{}
	for _, text := range list {
		text = marks.ReplaceAllString(text, "")
		for _, m := range create.FindAllStringSubmatch(text, -1) {
			at[m[1]] = len(tables)
			t := Table{Name: m[1]}
			for _, c := range column.FindAllStringSubmatch(m[2], -1) {
				t.Columns = append(t.Columns, newColumn(c[1], c[2], c[3]))
			}
			tables = append(tables, t)
		}
		for _, m := range added.FindAllStringSubmatch(text, -1) {
			t := &tables[at[m[1]]]
			t.Columns = append(t.Columns, newColumn(m[2], m[3], m[4]))
		}
	}
	return tables
}

func newColumn(name, kind, rest string) Column {
	null := !strings.Contains(rest, "NOT NULL") && !strings.Contains(rest, "PRIMARY KEY")
	return Column{Name: name, Type: kind, Null: null}
}
