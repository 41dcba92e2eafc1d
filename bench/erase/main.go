// Command erase measures the cost of overwriting deleted rows with zeros. ambit's store overwrites them by means of
// the SQLite setting secure_delete. The command measures SQLite with and without the setting.
//
//	bench/run erase
//
// The databases have the settings of the store: a write-ahead log and a sync for every commit. The output lines
// "deleted" measure deleting each row in its own commit, as ambit does when it settles calls. The lines "erased"
// measure clearing many rows in one commit, as ambit does when journal records expire. Several rows of 600 bytes share
// a page. A row of 20,000 bytes has its own pages, which secure_delete must write again. The two databases are measured
// in turn.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

func main() {
	rounds := flag.Int("rounds", 7, "number of rounds")
	deleted := flag.Int("deleted", 200, "number of rows to delete in a round, each in its own commit")
	erased := flag.Int("erased", 1000, "number of rows to erase in a round, all in one commit")
	flag.Parse()
	if *rounds < 1 || *deleted < 1 || *erased < 1 {
		fmt.Fprintln(os.Stderr, "bench: -rounds, -deleted and -erased must be at least 1")
		os.Exit(2)
	}
	if err := run(os.Stdout, *rounds, *deleted, *erased); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type work struct {
	name string
	size int // the size of a row in bytes
	rows int
	do   func(c *sqlite.Conn, rows int) error
}

// times contains the time per row in each round, without and with secure_delete.
type times struct{ plain, zeroed []time.Duration }

func run(w io.Writer, rounds, deleted, erased int) error {
	dir, err := os.MkdirTemp("", "erase-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	plain, err := open(filepath.Join(dir, "plain.db"), 0)
	if err != nil {
		return err
	}
	defer plain.Close()
	zeroed, err := open(filepath.Join(dir, "zeroed.db"), 1)
	if err != nil {
		return err
	}
	defer zeroed.Close()
	var works []work
	for _, size := range []int{600, 20_000} {
		works = append(works, work{"deleted, a commit each", size, deleted, deleteEach}, work{"erased in one commit", size, erased, eraseAll})
	}
	took := make([]times, len(works))
	for round := range rounds + 1 {
		for i, job := range works {
			without, err := job.time(plain)
			if err != nil {
				return err
			}
			with, err := job.time(zeroed)
			if err != nil {
				return err
			}
			if round > 0 { // the first round does not count, because the files grow
				took[i].plain, took[i].zeroed = append(took[i].plain, without), append(took[i].zeroed, with)
			}
		}
	}
	fmt.Fprintf(w, "SQLite without and with secure_delete, µs a row; median of %d alternating rounds\n", rounds)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "rows\tbytes\twithout\twith\twith : without\t")
	for i, job := range works {
		ratios := make([]float64, rounds)
		for r := range ratios {
			ratios[r] = float64(took[i].zeroed[r]) / float64(took[i].plain[r])
		}
		fmt.Fprintf(table, "%d %s\t%d\t%.1f\t%.1f\t%.2f\t\n", job.rows, job.name, job.size, micros(median(took[i].plain)), micros(median(took[i].zeroed)), median(ratios))
	}
	return table.Flush()
}

// open creates a database with the settings of ambit's store and the given secure_delete setting.
func open(file string, secure int) (*sqlite.Conn, error) {
	c, err := sqlite.OpenConn(file, sqlite.OpenReadWrite, sqlite.OpenCreate, sqlite.OpenWAL)
	if err != nil {
		return nil, err
	}
	for _, query := range []string{
		`PRAGMA synchronous = FULL`, `PRAGMA fullfsync = ON`, `PRAGMA journal_size_limit = 67108864`, fmt.Sprintf(`PRAGMA secure_delete = %d`, secure),
		`CREATE TABLE leaves (place INTEGER PRIMARY KEY, hash BLOB NOT NULL, record BLOB)`,
	} {
		if err == nil {
			err = sqlitex.ExecuteTransient(c, query, nil)
		}
	}
	is := -1
	if err == nil {
		err = sqlitex.Execute(c, `PRAGMA secure_delete`, &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
			is = s.ColumnInt(0)
			return nil
		}})
	}
	if err == nil && is != secure {
		err = fmt.Errorf("secure_delete is %d, want %d", is, secure)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// time fills the table and measures the work. It returns the time per row.
func (j *work) time(c *sqlite.Conn) (time.Duration, error) {
	if err := j.fill(c); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := j.do(c, j.rows); err != nil {
		return 0, err
	}
	return time.Since(start) / time.Duration(j.rows), nil
}

// fill replaces the rows of the table and empties the write-ahead log.
func (j *work) fill(c *sqlite.Conn) (err error) {
	if err := sqlitex.ExecuteTransient(c, `DELETE FROM leaves`, nil); err != nil {
		return err
	}
	done := sqlitex.Transaction(c)
	record := make([]byte, j.size)
	for i := range record {
		record[i] = 'x'
	}
	for i := range j.rows {
		if err == nil {
			err = sqlitex.Execute(c, `INSERT INTO leaves (place, hash, record) VALUES (?, ?, ?)`, &sqlitex.ExecOptions{Args: []any{i, record[:32], record}})
		}
	}
	done(&err)
	if err != nil {
		return err
	}
	return sqlitex.ExecuteTransient(c, `PRAGMA wal_checkpoint(TRUNCATE)`, nil)
}

func deleteEach(c *sqlite.Conn, rows int) error {
	for i := range rows {
		if err := sqlitex.Execute(c, `DELETE FROM leaves WHERE place = ?`, &sqlitex.ExecOptions{Args: []any{i}}); err != nil {
			return err
		}
	}
	return nil
}

func eraseAll(c *sqlite.Conn, _ int) error {
	return sqlitex.Execute(c, `UPDATE leaves SET record = NULL WHERE record IS NOT NULL`, nil)
}

func median[T float64 | time.Duration](list []T) T {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
