package migrations

import (
	"strings"
	"testing"
)

func TestOnlySQLiteIsUnwrapped(t *testing.T) {
	list := []string{"CREATE TABLE t (a BIGINT /*sqlite! INTEGER */ PRIMARY KEY) /*sqlite WITHOUT ROWID */;\n-- /* kept */\n"}
	want := "CREATE TABLE t (a INTEGER PRIMARY KEY) WITHOUT ROWID;\n-- /* kept */\n"
	if got := SQLite(list)[0]; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The steps use only the types TEXT, BIGINT and BYTEA, which mean the same in both engines.
func TestStepsUseThreeTypes(t *testing.T) {
	list := List()
	if len(list) == 0 {
		t.Fatal("there are no steps")
	}
	for i, text := range list {
		text = inSQLite.ReplaceAllString(text, "")
		for _, word := range []string{"INTEGER", "BLOB", "SERIAL", "BOOLEAN", "TIMESTAMP", "VARCHAR", "AUTOINCREMENT", "JSON"} {
			if strings.Contains(strings.ToUpper(text), word) {
				t.Errorf("step %d uses %s, which the two engines treat differently", i+1, word)
			}
		}
		if !strings.HasSuffix(text, ";\n") {
			t.Errorf("step %d does not end with a statement", i+1)
		}
	}
}
