package migrations

import (
	"regexp"
	"strings"
	"testing"
)

// additive matches the statements that a schema step may contain. They only add tables, indexes, rows
// and columns. So they do not disturb a process of the previous version.
var additive = regexp.MustCompile(`^(CREATE TABLE|CREATE INDEX|CREATE UNIQUE INDEX|INSERT INTO|ALTER TABLE \w+ ADD COLUMN) `)

// During a rollout, daemons of two versions share a store. A schema step must not disturb the daemons of the
// older version.
func TestStepsOnlyAdd(t *testing.T) {
	comment := regexp.MustCompile(`(?m)^--.*$`)
	for i, text := range List() {
		for statement := range strings.SplitSeq(comment.ReplaceAllString(text, ""), ";\n") {
			statement = strings.Join(strings.Fields(statement), " ")
			if statement == "" {
				continue
			}
			if !additive.MatchString(statement) {
				t.Errorf("step %d contains a statement that does not only add: %.60s", i+1, statement)
			}
			if strings.HasPrefix(statement, "ALTER") && strings.Contains(statement, "NOT NULL") && !strings.Contains(statement, "DEFAULT") {
				t.Errorf("step %d adds a NOT NULL column without a default, which inserts of an older version violate: %.60s", i+1, statement)
			}
		}
	}
}
