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
)

func newMemory(t *terminal) *cobra.Command {
	var storeURL string
	cmd := &cobra.Command{
		Use:     "memory",
		GroupID: groupRecords,
		Short:   "See and purge what programs remember",
		Long: "See and purge what programs remember of their answers. Answers are kept while the caller holds memory.write,\n" +
			"and shown to the agent's own program, and no other, while the caller holds memory.read. AGENT is an agent's\n" +
			"id or name, or the path of its manifest.",
		Example: "  ambit memory list research@local\n  ambit memory search research@local landlock\n  ambit memory purge research@local --older-than 7d",
	}
	storeFlag(cmd.PersistentFlags(), &storeURL)
	list := &cobra.Command{
		Use: "list AGENT", Short: "List what an agent remembers, oldest first", Args: exactly(1, "an agent"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.memory(cmd.Context(), storeURL, args[0], func(m *memory.Memory, id string) error {
				records, err := m.List(cmd.Context(), id)
				return t.remembered(id, records, err)
			})
		},
	}
	search := &cobra.Command{
		Use: "search AGENT WORD…", Short: "List what an agent remembers with all these words in it", Args: atLeast(2, "an agent and words"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.memory(cmd.Context(), storeURL, args[0], func(m *memory.Memory, id string) error {
				records, err := m.Search(cmd.Context(), id, strings.Join(args[1:], " "))
				return t.remembered(id, records, err)
			})
		},
	}
	show := &cobra.Command{
		Use: "show AGENT ID", Short: "Show one record", Args: exactly(2, "an agent and the id of an intent"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.memory(cmd.Context(), storeURL, args[0], func(m *memory.Memory, id string) error {
				r, err := m.Get(cmd.Context(), id, args[1])
				return t.showMemory(args[1], r, err)
			})
		},
	}
	return group(cmd, list, search, show, newMemoryPurge(t, &storeURL))
}

func newMemoryPurge(t *terminal, storeURL *string) *cobra.Command {
	var olderThan string
	cmd := &cobra.Command{
		Use:     "purge AGENT [ID…]",
		Short:   "Make an agent forget: some records, or all of them",
		Example: "  ambit memory purge research@local\n  ambit memory purge research@local --older-than 7d",
		Args:    atLeast(1, "an agent, and the ids of intents if not all is meant"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var before time.Time
			if olderThan != "" {
				if len(args) > 1 {
					return usage("leave one of them out", "--older-than does not go with ids")
				}
				// The same distance as of an end, into the past.
				now := time.Now()
				end, err := parseEnd(olderThan, now)
				if err != nil {
					return usage("write it as 7d or 12h", "--older-than %q is no time", olderThan)
				}
				before = now.Add(-end.Sub(now))
			}
			return t.memory(cmd.Context(), *storeURL, args[0], func(m *memory.Memory, id string) error {
				gone, err := m.Purge(cmd.Context(), id, args[1:], before, identity.LocalName())
				if errors.Is(err, memory.ErrUnknown) {
					return no("see: ambit memory list "+diag.ShellWord(id), "nothing was purged: %w", err)
				}
				if err != nil {
					return err
				}
				return t.say(map[string]any{"agent": id, "purged": gone}, "%s %s of %s\n", t.paint(green, "purged:"), count(int(gone), "record"), diag.Printable(id))
			})
		},
	}
	cmd.Flags().StringVar(&olderThan, "older-than", "", "only what is older than this `time` (7d, 12h)")
	return cmd
}

// memory opens the memory of an agent, by the agent's id, for the time of f.
func (t *terminal) memory(ctx context.Context, storeURL, name string, f func(*memory.Memory, string) error) error {
	h := t.home
	ttl, err := memory.TTL(h)
	if err != nil {
		return no("fix or remove the setting", "%w", err)
	}
	id, err := t.agentID(h, name)
	if err != nil {
		return err
	}
	return t.asOwner(ctx, "only the owner may look into the memory of agents", storeURL, func(b *store.Store) error {
		return f(memory.New(b, ttl), id)
	})
}

// agentID returns the id for a name: of an agent that is here, of a manifest by its path, or
// of an agent that is gone.
func (t *terminal) agentID(h home.Home, name string) (string, error) {
	if strings.Contains(name, "@") && !strings.ContainsAny(name, `/\`) {
		return name, nil // every program has one in its id, also one that is gone; a folder can have any name
	}
	found, err := daemon.Find(programFolders(h)...)
	if err != nil {
		return "", err
	}
	f := daemon.Pick(found, func(f *daemon.Found) bool { return f.Manifest != nil && f.Manifest.Agent() != nil && f.Name == name })
	if f != nil {
		return f.Manifest.Agent().ID, nil
	}
	m, err := t.load(name, "")
	if err != nil {
		return "", err
	}
	return m.Agent().ID, nil
}

// memoryDocument is a record in the output of --json.
type memoryDocument struct {
	memory.Record
	ExpiresAt string `json:"expires_at"`
	State     string `json:"state"`
}

func newMemoryDocument(r memory.Record) memoryDocument {
	d := memoryDocument{Record: r, ExpiresAt: r.Expires.UTC().Format(time.RFC3339), State: "good"}
	if r.Changed {
		d.State = "changed"
	}
	if d.Sources == nil {
		d.Sources = []string{}
	}
	return d
}

func (t *terminal) remembered(id string, records []memory.Record, err error) error {
	if err != nil {
		return err
	}
	if t.json {
		docs := make([]memoryDocument, len(records))
		for i, r := range records {
			docs[i] = newMemoryDocument(r)
		}
		return t.document(map[string]any{"agent": id, "records": docs})
	}
	if len(records) == 0 {
		t.notef("%s remembers nothing of the kind", diag.Printable(id))
		return nil
	}
	rows := [][]string{}
	for _, r := range records {
		if r.Changed {
			rows = append(rows, []string{diag.Printable(r.ID), t.paint(boldRed, "changed"), "", "it was changed in the store, and no program sees it"})
			continue
		}
		rows = append(rows, []string{diag.Printable(r.ID), moment(time.UnixMilli(r.Time)), diag.Printable(r.Issuer), brief(r.Text)})
	}
	t.table("", rows)
	return nil
}

// brief is the beginning of a text, on one line.
func brief(text string) string {
	const most = 60
	line, _, more := strings.Cut(text, "\n")
	if runes := []rune(line); len(runes) > most {
		line, more = string(runes[:most]), true
	}
	if more {
		line += "…"
	}
	return diag.Printable(line)
}

func (t *terminal) showMemory(id string, r memory.Record, err error) error {
	switch {
	case errors.Is(err, memory.ErrUnknown):
		return no("see which there are: ambit memory list AGENT", "%w: %s", err, diag.Printable(id))
	case err != nil:
		return err
	case r.Changed:
		return no("forget it: ambit memory purge AGENT "+diag.ShellWord(id), "the record %s was changed in the store, and cannot be read", diag.Printable(id))
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
