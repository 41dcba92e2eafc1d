package cli_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/exec/allowance"
	"github.com/ambit-run/ambit/internal/gateway/approval"
	"github.com/ambit-run/ambit/internal/gateway/grant"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/statetest"
	"github.com/ambit-run/ambit/internal/supply/bundle/review"
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
		run(0, "key new --all --name kept")
		run(0, "key new --all --name revoked")
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

		// Something other than ambit inserts a key and restores the revoked key.
		exec(`INSERT INTO api_keys SELECT 'forgedforg', name, hash, principal, agents, 1, made, expires, 0, '' FROM before_api_keys WHERE name = 'kept'`,
			`UPDATE api_keys SET revoked = 0`)
		if got := strings.Join(ids("changed"), " "); !strings.Contains(got, "forgedforg") || !strings.Contains(got, good[1]) {
			t.Errorf("the changed keys are %s, want the inserted key and the restored key", got)
		}
		run(1, "journal verify", "the journal is intact", "api key forgedforg: something other than ambit added, changed or restored it",
			"api key "+good[1]+": something other than ambit added")
		var doc struct {
			OK        bool
			Authority []struct{ Kind, ID, Problem string }
		}
		if err := json.Unmarshal([]byte(run(1, "journal verify --json")), &doc); err != nil || doc.OK || len(doc.Authority) != 2 {
			t.Errorf("the report is %+v (error %v), want two problems", doc, err)
		}
		run(0, "key adopt --yes", "there is nothing to adopt")
		exec(`DELETE FROM api_keys`)
		run(1, "journal verify", "api key "+good[0]+": something other than ambit deleted or changed it")

		// Something other than ambit changes the register.
		exec(`UPDATE authority SET until = 1`)
		run(1, "journal verify", "was changed by something other than ambit")
		run(3, "key list", "was changed by something other than ambit")

		// All tables are restored to their earlier state. A home does not remember its own SQLite store, because an
		// attacker who can change the store can read the root key.
		for _, table := range tables {
			exec(`DELETE FROM `+table, `INSERT INTO `+table+` SELECT * FROM before_`+table)
		}
		if strings.HasPrefix(place, "postgres://") {
			run(1, "journal verify", "is older than the one that this machine has seen")
			run(3, "key list", "is older", "ambit key adopt")
			run(1, "key adopt", "nothing was adopted")
			run(0, "key adopt --yes", "adopted: 2 rows")

			// Without seen.json, this machine cannot determine whether the register is an older version.
			seen := filepath.Join(homeOf(t), "seen.json")
			if err := os.WriteFile(seen, []byte(`{"torn`), 0o600); err != nil {
				t.Fatal(err)
			}
			run(1, "journal verify", seen, "cannot be read")
			run(3, "key list", seen, "cannot be read", "ambit key adopt")
			run(0, "key adopt --yes", "adopted: 2 rows")
		}
		run(0, "journal verify", "intact")
		if got := ids("good"); len(got) != 2 {
			t.Errorf("after the restore, the valid keys are %v, want both", got)
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
		} else {
			// This home has seen a register, so something other than ambit deleted it.
			if got := ids("changed"); len(got) != 2 {
				t.Errorf("after the register was deleted, the changed keys are %v; want both", got)
			}
			run(1, "journal verify", "something other than ambit added, changed or restored it")
			if err := os.Remove(filepath.Join(homeOf(t), "register-begun")); err != nil {
				t.Fatal(err)
			}
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

// Before a person adopts rows, ambit shows what each of them gives. Text in the rows cannot forge lines.
func TestAdoptShowsWhatRowsGive(t *testing.T) {
	t.Setenv("AMBIT_HOME", filepath.Join(t.TempDir(), "home"))
	t.Setenv("NO_COLOR", "1")
	says(t, 0, []string{"key", "new", "--name", "ci", "--principal", "bot@example.com", "--agents", "alpha,beta", "--expires", "1h"})
	says(t, 0, []string{"key", "new", "--name", "boss", "--admin", "--expires", "never"})
	b, err := store.Open(t.Context(), home.At(homeOf(t)), "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, now, end := t.Context(), time.Now(), time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC)
	_, err = grant.Of(b).Give(ctx, grant.Asked{Subject: "bot@example.com", Actions: []string{"tool.write"}, Expires: end}, "ada@local")
	err = errors.Join(err, allowance.Of(b).Allow(ctx, allowance.Holder{Agent: "alpha", ID: "id", Server: "files", Code: "c"},
		agent.Access{{Kind: agent.CanRead, What: "/srv/a\nb"}}, "ada@local"))
	err = errors.Join(err, review.Record(ctx, b, "call", review.Review{
		Digest: "sha256:d", Name: "counter", Principal: "ada@local", Verdict: review.Approved, Time: now,
	}))
	q, askErr := approval.Ask(ctx, b, &approval.Question{
		ID: "q1", Agent: "alpha", Tool: "send", Principal: "bot@example.com", Arguments: []byte(`{}`), Asked: now, Expires: end,
	})
	if err = errors.Join(err, askErr); err == nil {
		err = approval.Decide(ctx, b, q.ID, true, "ada@local", "")
	}
	if err == nil {
		err = b.DB.Write(ctx, func(tx state.Tx) error {
			_, err := tx.Exec(`UPDATE authority_head SET version = 1000`)
			return err
		})
	}
	if err := errors.Join(err, b.Close()); err != nil {
		t.Fatal(err)
	}
	says(t, 1, []string{"key", "adopt"},
		`: "ci" calls alpha, beta as bot@example.com, created `, `: "boss" administers the daemon as `, ", without an expiry date",
		`: bot@example.com has tool.write for all agents, granted by ada@local, until 2099-01-02T03:04:05Z`,
		`: the server files of the agent alpha may read /srv/a\u000ab, allowed by ada@local on `,
		`review sha256:d: the bundle counter is allowed to run, approved by ada@local on `,
		`approval q1: bot@example.com may call send of the agent alpha once, approved by ada@local, until 2099-`,
		"already used sign-in links and closed console sessions may work again", "nothing was adopted")
	says(t, 0, []string{"key", "adopt", "--yes", "--json"}, `"gives": "bot@example.com may call send of`)
}
