package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/exec/memory"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/manifest"
)

func newMemory(t *terminal) *cobra.Command {
	var storeURL string
	cmd := &cobra.Command{Use: "memory"}
	sharedStoreFlag(cmd.PersistentFlags(), &storeURL)
	list := verb("list AGENT", exactly(1, "an agent"), func(ctx context.Context, args []string) error {
		return t.withMemory(ctx, storeURL, args[0], func(m *memory.Memory, id string) error {
			records, err := m.List(ctx, id)
			return t.remembered(id, records, err)
		})
	})
	words := atLeast(2, "an agent and the words to search for")
	search := verb("search AGENT WORD…", words, func(ctx context.Context, args []string) error {
		return t.withMemory(ctx, storeURL, args[0], func(m *memory.Memory, id string) error {
			records, err := m.Search(ctx, id, strings.Join(args[1:], " "))
			return t.remembered(id, records, err)
		})
	})
	id := exactly(2, "an agent and the id of an intent")
	show := verb("show AGENT ID", id, func(ctx context.Context, args []string) error {
		return t.withMemory(ctx, storeURL, args[0], func(m *memory.Memory, id string) error {
			r, err := m.Get(ctx, id, args[1])
			return t.showMemory(args[1], r, err)
		})
	})
	return group(cmd, list, search, show, newMemoryPurge(t, &storeURL))
}

func newMemoryPurge(t *terminal, storeURL *string) *cobra.Command {
	var olderThan string
	ids := atLeast(1, "an agent, and optionally the ids of intents")
	cmd := verb("purge AGENT [ID…]", ids, func(ctx context.Context, args []string) error {
		var before time.Time
		if olderThan != "" {
			if len(args) > 1 {
				return usage("use either --older-than or ids", "--older-than and ids cannot be combined")
			}
			age, err := home.Duration(olderThan)
			if err != nil || age == 0 {
				return usage("write an age such as 7d or 12h", "--older-than %q is not an age", olderThan)
			}
			before = time.Now().Add(-age)
		}
		return t.withMemory(ctx, *storeURL, args[0], func(m *memory.Memory, id string) error {
			gone, err := m.Purge(ctx, id, args[1:], before, identity.LocalName())
			if errors.Is(err, memory.ErrUnknown) {
				return no("to list the records, run: ambit memory list "+diag.ShellWord(id), "nothing was purged: %w", err)
			}
			if err != nil {
				return err
			}
			return t.say(map[string]any{"agent": id, "purged": gone}, "%s %s of %s\n",
				t.paint(green, "purged:"), count(int(gone), "record"), diag.Printable(id))
		})
	})
	cmd.Flags().StringVar(&olderThan, "older-than", "", "purge only records that are older than this `time` (7d, 12h)")
	return cmd
}

// withMemory calls f with the memory of all agents and the id of the named agent.
func (t *terminal) withMemory(ctx context.Context, storeURL, name string, f func(*memory.Memory, string) error) error {
	ttl, err := memory.TTL(t.home)
	if err != nil {
		return no("fix or remove the setting", "%w", err)
	}
	id, err := t.agentID(name)
	if err != nil {
		return err
	}
	return t.asOwner(ctx, "only the owner may use the memory of agents", storeURL, func(b *store.Store) error {
		return f(memory.New(b, ttl), id)
	})
}

// agentID returns the id of the named agent. The name can also be the path of a manifest, or an id. An id is accepted
// even if its agent was removed.
func (t *terminal) agentID(name string) (string, error) {
	if strings.Contains(name, "@") && !strings.ContainsAny(name, `/\`) {
		return name, nil // the name is an id, because only ids contain @
	}
	found, err := agentsIn(manifest.Options{}, programFolders(t.home)...)
	if err != nil {
		return "", err
	}
	if f := daemon.Pick(found, func(f *daemon.Found) bool { return f.Name == name }); f != nil {
		return f.Manifest.Agent().ID, nil
	}
	m, err := t.load(name, "")
	if err != nil {
		return "", err
	}
	return m.Agent().ID, nil
}

// memoryDocument is the JSON document for a record of an agent's memory.
type memoryDocument struct {
	memory.Record
	ExpiresAt string `json:"expires_at"`
	State     string `json:"state"`
}

func newMemoryDocument(r memory.Record) memoryDocument {
	r.Sources = notNil(r.Sources)
	d := memoryDocument{Record: r, ExpiresAt: r.Expires.UTC().Format(time.RFC3339), State: "good"}
	if r.Changed {
		d.State = "changed"
	}
	return d
}

func (t *terminal) remembered(id string, records []memory.Record, err error) error {
	if err != nil {
		return err
	}
	return t.show(map[string]any{"agent": id, "records": each(records, newMemoryDocument)}, func() {
		if len(records) == 0 {
			t.notef("the memory of %s has no matching records", diag.Printable(id))
		}
		t.table("", each(records, func(r memory.Record) []string {
			id := diag.Printable(r.ID)
			if r.Changed {
				return []string{id, t.paint(boldRed, "changed"), "", "changed outside ambit and hidden from programs"}
			}
			return []string{id, moment(time.UnixMilli(r.Time)), diag.Printable(r.Issuer), brief(r.Text)}
		}))
	})
}

// brief returns the first line of a text, shortened for a table.
func brief(text string) string {
	line, _, more := strings.Cut(text, "\n")
	if more {
		line += "…"
	}
	return diag.Printable(clip(line, 61))
}

func (t *terminal) showMemory(id string, r memory.Record, err error) error {
	switch {
	case errors.Is(err, memory.ErrUnknown):
		return no("to list the records, run: ambit memory list AGENT", "%w: %s", err, diag.Printable(id))
	case err != nil:
		return err
	case r.Changed:
		return no("to delete the record, run: ambit memory purge AGENT "+diag.ShellWord(id),
			"the record %s was changed outside ambit, so it cannot be read", diag.Printable(id))
	case t.json:
		return t.document(newMemoryDocument(r))
	}
	rows := [][]string{
		{"id", diag.Printable(r.ID)},
		{"time", moment(time.UnixMilli(r.Time))},
		{"issuer", diag.Printable(r.Issuer)},
		{"forgotten", moment(r.Expires)},
	}
	for _, s := range r.Sources {
		rows = append(rows, []string{"source", diag.Printable(s)})
	}
	t.table("", rows)
	for line := range strings.SplitSeq(r.Text, "\n") {
		t.printf("%s\n", diag.Printable(line))
	}
	return nil
}
