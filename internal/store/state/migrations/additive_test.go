package migrations

import (
	"regexp"
	"strings"
	"testing"
)

// takes is a step's statement that a process of the version before can live with:
// it adds, and what it adds to a table that is there may be left out.
var takes = regexp.MustCompile(`^(CREATE TABLE|CREATE INDEX|CREATE UNIQUE INDEX|INSERT INTO|ALTER TABLE \w+ ADD COLUMN) `)

// During a rollout, daemons of two versions share a store: a step must leave those
// that run on the version before as they are.
func TestStepsOnlyAdd(t *testing.T) {
	comment := regexp.MustCompile(`(?m)^--.*$`)
	for i, text := range List() {
		for statement := range strings.SplitSeq(comment.ReplaceAllString(text, ""), ";\n") {
			statement = strings.Join(strings.Fields(statement), " ")
			if statement == "" {
				continue
			}
			if !takes.MatchString(statement) {
				t.Errorf("step %d does more than add: %.60s", i+1, statement)
			}
			if strings.HasPrefix(statement, "ALTER") && strings.Contains(statement, "NOT NULL") && !strings.Contains(statement, "DEFAULT") {
				t.Errorf("step %d adds a column that an older ambit leaves out and must not: %.60s", i+1, statement)
			}
		}
	}
}
