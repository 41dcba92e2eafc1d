package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
)

// Keys that something other than ambit wrote, deleted or restored have no effect, and ambit journal verify reports them.
// The owner can adopt a store that was restored as a whole.
func TestAuthorityOfOthers(t *testing.T) {
	statetest.Places(t, func(t *testing.T, place string) {
		t.Setenv("AMBIT_HOME", filepath.Join(t.TempDir(), "home"))
		t.Setenv("NO_COLOR", "1")
		run := func(code int, line string, want ...string) string {
			t.Helper()
			args := strings.Fields(line)
			if strings.HasPrefix(place, "postgres://") {
				args = append(args, "--store", place)
			}
			return says(t, code, args, want...)
		}
		ids := func(state string) (list []string) {
			t.Helper()
			var doc struct{ Keys []struct{ ID, State string } }
			if err := json.Unmarshal([]byte(run(0, "key list --json")), &doc); err != nil {
				t.Fatal(err)
			}
			for _, k := range doc.Keys {
				if k.State == state {
					list = append(list, k.ID)
				}
			}
			return list
		}
		run(0, "key new --name kept")
		run(0, "key new --name revoked")
		run(0, "journal verify", "the journal is intact")
		good := ids("good")

		inStore := func(f func(db state.DB)) {
			t.Helper()
			at := place
			if !strings.HasPrefix(place, "postgres://") {
				at = filepath.Join(homeOf(t), "state.db")
			}
			db, err := statetest.OpenPlace(t.Context(), at)
			if err != nil {
				t.Fatal(err)
			}
			f(db)
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
		exec := func(statements ...string) {
			t.Helper()
			inStore(func(db state.DB) {
				t.Helper()
				err := db.Write(t.Context(), func(tx state.Tx) error {
					for _, s := range statements {
						if _, err := tx.Exec(s); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			})
		}
		tables := []string{"api_keys", "authority", "authority_head"}
		for _, table := range tables {
			exec(`CREATE TABLE before_` + table + ` AS SELECT * FROM ` + table)
		}
		run(0, "key revoke "+good[1])

		// A key is inserted and the revoked key is restored.
		exec(`INSERT INTO api_keys SELECT 'forgedforg', name, hash, principal, agents, 1, made, expires, 0 FROM before_api_keys WHERE name = 'kept'`,
			`UPDATE api_keys SET revoked = 0`)
		if got := strings.Join(ids("changed"), " "); !strings.Contains(got, "forgedforg") || !strings.Contains(got, good[1]) {
			t.Errorf("the changed keys are %s", got)
		}
		run(1, "journal verify", "the journal is intact", "api key forgedforg: something other than ambit added, changed or restored it",
			"api key "+good[1]+": something other than ambit added")
		var doc struct {
			OK        bool
			Authority []struct{ Kind, ID, Problem string }
		}
		if err := json.Unmarshal([]byte(run(1, "journal verify --json")), &doc); err != nil || doc.OK || len(doc.Authority) != 2 {
			t.Errorf("the report is %+v, %v", doc, err)
		}
		run(0, "key adopt --yes", "there is nothing to adopt")
		exec(`DELETE FROM api_keys`)
		run(1, "journal verify", "api key "+good[0]+": something other than ambit deleted or changed it")

		// The register is changed.
		exec(`UPDATE authority SET until = 1`)
		run(1, "journal verify", "was changed by something other than ambit")
		run(3, "key list", "was changed by something other than ambit")

		// All of it is restored. A home does not remember its own SQLite store, because an attacker who can change the
		// store can read the root key.
		for _, table := range tables {
			exec(`DELETE FROM `+table, `INSERT INTO `+table+` SELECT * FROM before_`+table)
		}
		if strings.HasPrefix(place, "postgres://") {
			run(1, "journal verify", "is older than the one that this machine has seen")
			run(3, "key list", "is older", "ambit key adopt")
			run(1, "key adopt", "nothing was adopted")
			run(0, "key adopt --yes", "adopted: 2 rows")
		}
		run(0, "journal verify", "intact")
		if got := ids("good"); len(got) != 2 {
			t.Errorf("after the restore, the keys are %v", got)
		}

		// A store of an earlier version has no register.
		exec(`DELETE FROM authority`, `DELETE FROM authority_head`)
		if strings.HasPrefix(place, "postgres://") {
			run(3, "key list", "is older")
			t.Setenv("AMBIT_HOME", sameRoot(t))
			if got := ids("changed"); len(got) != 2 {
				t.Errorf("in a store without a register, the changed keys are %v; want both", got)
			}
			run(0, "key adopt --yes", "adopted: 2 rows")
		}
		if got := ids("good"); len(got) != 2 {
			t.Errorf("the keys of an earlier version are %v; want both", got)
		}
	})
}

func homeOf(t *testing.T) string {
	t.Helper()
	return os.Getenv("AMBIT_HOME")
}

// sameRoot returns a new home with the root key of the home of this test.
func sameRoot(t *testing.T) string {
	t.Helper()
	root, err := os.ReadFile(filepath.Join(homeOf(t), "keys", "root"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "other")
	if err := os.MkdirAll(filepath.Join(dir, "keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "keys", "root"), root, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
