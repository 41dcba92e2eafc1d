package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/ambit-run/ambit/bench/plot/chart"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

// batch is the number of records in one transaction.
const batch = 5000

// growJournal measures journals of several sizes. For each size, it fills the journal, starts a daemon and runs the
// commands of "ambit journal".
func growJournal(ctx context.Context, s *setup, sizes sizes) (chart.Chart, error) {
	lines := map[string]*chart.Line{}
	line := func(name string) *chart.Line {
		if lines[name] == nil {
			lines[name] = &chart.Line{Name: name}
		}
		return lines[name]
	}
	where, agents := home.At(filepath.Join(s.dir, "home")), filepath.Join(s.dir, "agents")
	if err := s.writeAgent(agents, "echo", 3); err != nil {
		return chart.Chart{}, err
	}
	have := 0
	for _, n := range sizes {
		if err := fill(ctx, where, have, n, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)); err != nil {
			return chart.Chart{}, err
		}
		have = n
		up, ready, most, err := s.starts(ctx, where, agents)
		if err != nil {
			return chart.Chart{}, err
		}
		line("daemon listening").Add(n, ms(up))
		line("daemon's agent proven").Add(n, ms(ready))
		line("daemon, resident").Add(n, mib(most))
		export := filepath.Join(s.dir, "export.jsonl")
		for _, ask := range []struct {
			name string
			args []string
			want func([]byte) bool
		}{
			{"verify", []string{"verify", "--json"}, verified(n)},
			{"prove", []string{"prove", strconv.Itoa(n / 2)}, nil},
			{"newest 100", []string{"show", "--json"}, counts(100)},
			{"a tool used often", []string{"show", "--json", "--tool", toolName(7)}, counts(100)},
			{"a tool used once", []string{"show", "--json", "--tool", rare}, counts(1)},
			{"a principal seen once", []string{"show", "--json", "--principal", rare + "@local"}, counts(1)},
			{"a tool never used", []string{"show", "--json", "--tool", "never"}, counts(0)},
			{"a call by its id", []string{"show", "--json", "--call", callName(1)}, counts(1)},
			{"unknown outcomes", []string{"show", "--json", "--unknown"}, counts(0)},
			// The export runs last, because it keeps the disk busy for a while.
			{"export", []string{"export", "-o", export}, nil},
		} {
			took, most, err := s.journal(ctx, where, ask.args, ask.want)
			if err != nil {
				return chart.Chart{}, fmt.Errorf("journal %v: %w", ask.args, err)
			}
			line(ask.name).Add(n, ms(took))
			line(ask.name+", resident").Add(n, mib(most))
		}
		if err := os.Remove(export); err != nil {
			return chart.Chart{}, err
		}
		size, err := weigh(where)
		if err != nil {
			return chart.Chart{}, err
		}
		line("store").Add(n, mib(size))
	}
	return chart.Chart{
		Title: "Records in the journal (whole commands, start of the process included)", X: "records", Command: "bench/run growth -only journal",
		Panels: []chart.Panel{
			{Title: "Whole journal", Unit: "ms", Log: true, Lines: pick(lines, "verify", "export")},
			{Title: "Part of it", Unit: "ms", Log: true, Lines: pick(lines, "prove", "newest 100", "a tool used often", "a tool used once", "a principal seen once", "a tool never used", "a call by its id", "unknown outcomes")},
			{Title: "A daemon's start", Unit: "ms", Log: true, Lines: pick(lines, "daemon listening", "daemon's agent proven")},
			{Title: "Size", Unit: "MiB", Log: true, Lines: pick(lines, "store", "verify, resident", "export, resident", "a tool used once, resident", "daemon, resident")},
		},
	}, nil
}

func pick(lines map[string]*chart.Line, names ...string) (list []chart.Line) {
	for _, name := range names {
		list = append(list, *lines[name])
	}
	return list
}

// rare is a tool that occurs only in the first record. The principal of that record has the same name, followed by
// @local.
const rare = "used_once"

// fill adds records to the journal. The parameters have and want are the numbers of records before and after. The
// records are one second apart, beginning at start.
func fill(ctx context.Context, where home.Home, have, want int, start time.Time) (err error) {
	b, err := store.Open(ctx, where, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	for from := have; from < want; from += batch {
		err := b.DB.Write(ctx, func(tx state.Tx) error {
			for i := from; i < min(from+batch, want); i++ {
				if _, err := b.Journal.Append(tx, record(i, start.Add(time.Duration(i)*time.Second))); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// record returns a journal record of about 600 bytes, like those of the gateway.
func record(i int, at time.Time) *journal.Record {
	tool, principal := toolName(i%32), "someone@local"
	if i == 0 {
		tool, principal = rare, rare+"@local"
	}
	return &journal.Record{
		Time: at, Call: callName(i), Agent: "echo", ID: "matrix://agent/echo", Digest: fmt.Sprintf("sha256:%064d", 1), Principal: principal,
		Tool: tool, URI: "matrix://tool/stub/" + tool, SideEffect: "read", Decision: journal.Allow, Arguments: json.RawMessage(`{"text":"a text of a usual length that goes there and back"}`),
		ArgumentsMAC: fmt.Sprintf("%064d", i), ArgumentsSize: 63, ResultHash: fmt.Sprintf("%064d", i), ResultSize: 120, DurationUS: 900,
	}
}

func callName(i int) string { return fmt.Sprintf("01J%023d", i) }

// starts measures several starts of a daemon with the journal. It returns the times of the fastest start, and the
// largest memory use. It makes no calls, so the journal does not grow.
func (s *setup) starts(ctx context.Context, where home.Home, agents string) (up, ready time.Duration, most int64, err error) {
	for run := 0; run < 3; run++ {
		d, err := s.serveIn(ctx, where.Dir(), agents, 1)
		if err != nil {
			return 0, 0, 0, err
		}
		most = max(most, d.memory())
		d.close()
		if run == 0 || d.ready < ready {
			up, ready = d.up, d.ready
		}
		if d.ready > 2*time.Second { // one measurement is enough if the start is slow
			break
		}
	}
	return up, ready, most, nil
}

// journal runs an "ambit journal" command several times. It returns the time of the fastest run, and the largest
// memory use.
func (s *setup) journal(ctx context.Context, where home.Home, args []string, want func([]byte) bool) (best time.Duration, most int64, err error) {
	for run := 0; run < 5; run++ {
		cmd := exec.CommandContext(ctx, s.ambit, append([]string{"journal"}, args...)...)
		cmd.Env = append(os.Environ(), "AMBIT_HOME="+where.Dir())
		var out, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &stderr
		start := time.Now()
		if err := cmd.Start(); err != nil {
			return 0, 0, err
		}
		ended, had := make(chan struct{}), make(chan int64)
		go func() { had <- peak(cmd.Process.Pid, ended) }()
		err := cmd.Wait()
		took := time.Since(start)
		close(ended)
		most = max(most, <-had)
		if err != nil {
			return 0, 0, fmt.Errorf("%w: %.300s", err, stderr.Bytes())
		}
		if want != nil && !want(out.Bytes()) {
			return 0, 0, fmt.Errorf("%w: %.300s", errWrong, out.Bytes())
		}
		if run == 0 || took < best {
			best = took
		}
		if took > 2*time.Second { // one measurement is enough if the command is slow
			break
		}
	}
	return best, most, nil
}

// verified returns a check for the output of "ambit journal verify --json".
func verified(records int) func([]byte) bool {
	return func(out []byte) bool {
		var doc map[string]any
		return json.Unmarshal(out, &doc) == nil && doc["ok"] == true && doc["records"] == float64(records)
	}
}

// counts returns a check for the number of records in the output of "ambit journal show --json".
func counts(want int) func([]byte) bool {
	return func(out []byte) bool {
		var doc struct{ Records []any }
		return json.Unmarshal(out, &doc) == nil && len(doc.Records) == want
	}
}

// weigh returns the size of the store's files in bytes.
func weigh(where home.Home) (sum int64, err error) {
	files, err := filepath.Glob(where.State() + "*")
	for _, f := range files {
		info, e := os.Stat(f)
		if e != nil {
			return 0, e
		}
		sum += info.Size()
	}
	return sum, err
}
