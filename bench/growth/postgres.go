package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"zombiezen.com/go/sqlite"

	"github.com/ambit-run/ambit/bench/plot/chart"
	"github.com/ambit-run/ambit/internal/store"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state"
)

// growPostgres measures journals of several sizes on PostgreSQL. The records are made in SQLite and copied, because
// PostgreSQL needs a round trip for each record.
func growPostgres(ctx context.Context, s *setup, sizes sizes) (chart.Chart, error) {
	lines := map[string]*chart.Line{}
	add := func(name string, n int, y float64) {
		if lines[name] == nil {
			lines[name] = &chart.Line{Name: name}
		}
		lines[name].Add(n, y)
	}
	where := home.At(filepath.Join(s.dir, "home"))
	start, have := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), 0
	for _, n := range sizes {
		if err := fill(ctx, where, have, n, start); err != nil {
			return chart.Chart{}, err
		}
		have = n
		err := func() error {
			f, err := s.newFleet(ctx, "")
			if err != nil {
				return err
			}
			defer f.close()
			if err := f.copyFrom(ctx, where); err != nil {
				return err
			}
			for _, ask := range []struct {
				name string
				args []string
				want func([]byte) bool
			}{
				{"newest 100", []string{"show", "--json"}, counts(100)},
				{"a tool used once", []string{"show", "--json", "--tool", rare}, counts(1)},
				{"a call by its id", []string{"show", "--json", "--call", callName(1)}, counts(1)},
				{"prove", []string{"prove", strconv.Itoa(n / 2)}, nil},
				{"verify", []string{"verify", "--json"}, verified(n)},
			} {
				took, _, err := s.journal(ctx, where, append(ask.args, "--store", f.url), ask.want)
				if err != nil {
					return fmt.Errorf("journal %v: %w", ask.args, err)
				}
				add(ask.name, n, ms(took))
			}
			return f.change(ctx, where, start, func(name string, y float64) { add(name, n, y) })
		}()
		if err != nil {
			return chart.Chart{}, err
		}
	}
	return chart.Chart{
		Title: "Records in the journal on PostgreSQL", X: "records", Command: "bench/run growth -only postgres",
		Panels: []chart.Panel{
			{Title: "One record", Unit: "ms", Log: true, Lines: pick(lines, "append", "append, PostgreSQL's CPU", "erase", "erase, PostgreSQL's CPU", "vacuum")},
			{Title: "Part of it", Unit: "ms", Log: true, Lines: pick(lines, "newest 100", "a tool used once", "a call by its id", "prove")},
			{Title: "Whole journal", Unit: "ms", Log: true, Lines: pick(lines, "verify")},
			{Title: "Size", Unit: "MiB", Log: true, Lines: pick(lines, "tables", "indexes")},
		},
	}, nil
}

// copyFrom copies the journal of a SQLite store to an empty PostgreSQL store.
func (f *fleet) copyFrom(ctx context.Context, where home.Home) error {
	b, err := store.Open(ctx, home.At(f.s.dir+"/none"), f.url) // makes the tables
	if err == nil {
		err = b.Close()
	}
	if err != nil {
		return err
	}
	from, err := sqlite.OpenConn(where.State(), sqlite.OpenReadOnly)
	if err != nil {
		return err
	}
	defer from.Close()
	for _, table := range []string{
		"begun", "logs", "heads", "leaves", "tiles", "checkpoints", "journal_values", "journal_calls", "journal_indexed",
		"authority", "authority_head",
	} {
		if err := f.copyTable(ctx, from, table); err != nil {
			return fmt.Errorf("%s: %w", table, err)
		}
	}
	_, err = f.conn.Exec(ctx, `VACUUM ANALYZE`)
	return err
}

func (f *fleet) copyTable(ctx context.Context, from *sqlite.Conn, table string) (err error) {
	rows, _ := f.conn.Query(ctx, `SELECT column_name FROM information_schema.columns WHERE table_name = $1 ORDER BY ordinal_position`, table)
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	if _, err := f.conn.Exec(ctx, `TRUNCATE `+table); err != nil {
		return err
	}
	all, _, err := from.PrepareTransient(`SELECT ` + strings.Join(columns, ", ") + ` FROM ` + table)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, all.Finalize()) }()
	_, err = f.conn.CopyFrom(ctx, pgx.Identifier{table}, columns, pgx.CopyFromFunc(func() ([]any, error) {
		if more, err := all.Step(); err != nil || !more {
			return nil, err
		}
		values := make([]any, len(columns))
		for i := range values {
			switch all.ColumnType(i) {
			case sqlite.TypeInteger:
				values[i] = all.ColumnInt64(i)
			case sqlite.TypeText:
				values[i] = all.ColumnText(i)
			case sqlite.TypeBlob:
				bytes := make([]byte, all.ColumnLen(i))
				all.ColumnBytes(i, bytes)
				values[i] = bytes
			}
		}
		return values, nil
	}))
	return err
}

// changed is the number of records that are appended and erased.
const changed = 5000

// change appends records, erases the oldest ones, and vacuums the tables. It reports the costs of one record, and the
// sizes of all tables.
func (f *fleet) change(ctx context.Context, where home.Home, start time.Time, add func(name string, y float64)) (err error) {
	b, err := store.Open(ctx, where, f.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	const together = 8 // the records of a transaction
	begun, used := time.Now(), cpuOfTree(f.server)
	for i := 0; i < changed; i += together {
		err := b.DB.Write(ctx, func(tx state.Tx) error {
			for k := range together {
				if _, err := b.Journal.Append(tx, record(i+k, time.Now())); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	add("append", ms(time.Since(begun))/changed)
	add("append, PostgreSQL's CPU", ms(cpuOfTree(f.server)-used)/changed)
	begun, used = time.Now(), cpuOfTree(f.server)
	n, err := b.Journal.Erase(ctx, start.Add(changed*time.Second), "bench")
	if err != nil || n < changed/2 {
		return fmt.Errorf("erased %d records: %w", n, err)
	}
	add("erase", ms(time.Since(begun))/float64(n))
	add("erase, PostgreSQL's CPU", ms(cpuOfTree(f.server)-used)/float64(n))
	begun = time.Now()
	if _, err := f.conn.Exec(ctx, `VACUUM leaves`); err != nil {
		return err
	}
	add("vacuum", ms(time.Since(begun))/float64(n))
	var tables, indexes int64
	err = f.conn.QueryRow(ctx, `SELECT sum(pg_table_size(oid))::bigint, sum(pg_indexes_size(oid))::bigint FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`).Scan(&tables, &indexes)
	add("tables", mib(tables))
	add("indexes", mib(indexes))
	return err
}
