package statetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/engine"
)

// child names what a copy of this test program does instead of testing.
const child = "AMBIT_STATETEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(child) {
	case "":
		goleak.VerifyTestMain(m)
	case "hold":
		err := hold(os.Args[1])
		fmt.Fprintln(os.Stderr, err)
	case "race":
		if err := race(os.Args[1], os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(1)
}

type process struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// start starts a copy of this test program and returns its first line.
func start(t *testing.T, what string, args ...string) (process, string) {
	t.Helper()
	p := process{Cmd: exec.Command(os.Args[0], args...)}
	p.Env = append(os.Environ(), child+"="+what)
	p.Stderr = os.Stderr
	var err error
	if p.in, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill() // it may have ended
		_ = p.Wait()
	})
	p.out = bufio.NewScanner(out)
	if !p.out.Scan() {
		t.Fatalf("the process that should %s printed nothing", what)
	}
	return p, p.out.Text()
}

// hold opens a store, says who it is, and stays with a write under way.
func hold(place string) error {
	db, err := OpenPlace(context.Background(), place)
	if err != nil {
		return err
	}
	return db.Write(context.Background(), func(tx state.Tx) error {
		if _, err := tx.Exec(`INSERT INTO things (id) VALUES (1)`); err != nil {
			return err
		}
		fmt.Println(db.Owner())
		select {}
	})
}

func TestAlive(t *testing.T) {
	Each(t, func(t *testing.T, open func() state.DB) {
		db, other := open(), open()
		check := func(owner string, want bool) {
			t.Helper()
			if alive, err := db.Alive(t.Context(), owner); err != nil || alive != want {
				t.Errorf("Alive(%q) is %v, error %v", owner, alive, err)
			}
		}
		check(db.Owner(), true)
		check(other.Owner(), true)
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		check(other.Owner(), false)
		for _, owner := range []string{"", ".", "..", "../state.db", "/etc/passwd", "NOBODY", "00000000000000zz", "0000000000000000"} {
			check(owner, false)
		}
	})
}

func TestKilledOwnerIsDead(t *testing.T) {
	Places(t, func(t *testing.T, place string) {
		db := At(t, place)
		table(t, db)
		p, owner := start(t, "hold", place)
		if alive, err := db.Alive(t.Context(), owner); err != nil || !alive {
			t.Errorf("the running process is alive: %v, error %v", alive, err)
		}
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = p.Wait() // it was killed
		// A server hears of the end of a process a moment later.
		for alive := true; alive; {
			var err error
			if alive, err = db.Alive(t.Context(), owner); err != nil {
				t.Fatal(err)
			}
		}
		do(t, db, `INSERT INTO things (id) VALUES (2)`)
		if n := number(t, db, `SELECT id FROM things`); n != 2 {
			t.Errorf("the row of the killed process is there: %d", n)
		}
	})
}

// await looks at the store until the row is there, as every waiter does.
func await(ctx context.Context, db state.DB, id int64) error {
	for {
		var n int64
		if err := db.Read(ctx, func(tx state.Tx) error {
			return scan(tx, &n, `SELECT count(*) FROM things WHERE id = $1`, id)
		}); err != nil || n > 0 {
			return err
		}
		if err := db.Changed(ctx); err != nil {
			return err
		}
	}
}

func TestChangedWakes(t *testing.T) {
	defer func(old time.Duration) { engine.WaitTime = old }(engine.WaitTime)
	engine.WaitTime = time.Hour // only a commit ends a wait
	Each(t, func(t *testing.T, open func() state.DB) {
		db, other := open(), open()
		table(t, db)
		for id := range int64(10) {
			// One waiter: what happens between its look and its wait is seen.
			woken := make(chan error, 1)
			go func() { woken <- await(t.Context(), db, id) }()
			do(t, []state.DB{db, other}[id%2], `INSERT INTO things (id) VALUES ($1)`, id)
			select {
			case err := <-woken:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(time.Minute):
				t.Fatal("the waiter was not woken")
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		for ctx.Err() == nil { // earlier commits may count
			if err := db.Changed(ctx); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if err := db.Changed(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Changed returned %v", err)
		}
	})
}

func TestCanceled(t *testing.T) {
	Each(t, func(t *testing.T, open func() state.DB) {
		db := open()
		table(t, db)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		never := func(state.Tx) error { t.Error("f ran"); return nil }
		if err := db.Write(gone, never); !errors.Is(err, context.Canceled) {
			t.Errorf("Write returned %v", err)
		}
		if err := db.Read(gone, never); !errors.Is(err, context.Canceled) {
			t.Errorf("Read returned %v", err)
		}

		// One member runs, one behind it leaves, one stays.
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		inside, leave := make(chan bool), make(chan bool)
		wg.Go(func() {
			if err := db.Write(t.Context(), func(tx state.Tx) error {
				close(inside)
				<-leave
				return insert(tx, 1)
			}); err != nil {
				t.Error(err)
			}
		})
		<-inside
		wg.Go(func() {
			if err := db.Write(t.Context(), func(tx state.Tx) error { return insert(tx, 2) }); err != nil {
				t.Error(err)
			}
		})
		cancel()
		if err := db.Write(ctx, never); !errors.Is(err, context.Canceled) {
			t.Errorf("Write returned %v", err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		wg.Go(func() {
			if err := db.Write(ctx, never); !errors.Is(err, context.Canceled) {
				t.Errorf("the waiting Write returned %v", err)
			}
		})
		cancel()
		close(leave)
		wg.Wait()

		// In the middle of f: the next statement fails, and only this member.
		ctx, cancel = context.WithCancel(t.Context())
		err := db.Write(ctx, func(tx state.Tx) error {
			if err := insert(tx, 3); err != nil {
				return err
			}
			cancel()
			return insert(tx, 4)
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Write returned %v", err)
		}
		// After the last statement: the changes are committed, and Write returns nil.
		ctx, cancel = context.WithCancel(t.Context())
		if err := db.Write(ctx, func(tx state.Tx) error { defer cancel(); return insert(tx, 5) }); err != nil {
			t.Errorf("Write returned %v", err)
		}
		if n := number(t, db, `SELECT CAST(sum(id) AS BIGINT) FROM things`); n != 1+2+5 {
			t.Errorf("the ids add up to %d", n)
		}
	})
}

func TestClosed(t *testing.T) {
	Each(t, func(t *testing.T, open func() state.DB) {
		db := open()
		owner := db.Owner()
		// A write that runs is finished; one that waits is not begun.
		inside, leave := make(chan bool), make(chan bool)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := db.Write(t.Context(), func(tx state.Tx) error {
				close(inside)
				<-leave
				_, err := tx.Exec(`CREATE TABLE things (id BIGINT)`)
				return err
			}); err != nil {
				t.Error(err)
			}
		})
		<-inside
		waiting := make(chan error, 1)
		go func() {
			for {
				if err := db.Changed(t.Context()); err != nil {
					waiting <- err
					return
				}
			}
		}()
		wg.Go(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		if err := <-waiting; !errors.Is(err, state.ErrClosed) {
			t.Errorf("the waiting Changed returned %v", err)
		}
		if err := db.Write(t.Context(), func(state.Tx) error { t.Error("f ran"); return nil }); !errors.Is(err, state.ErrClosed) {
			t.Errorf("Write returned %v", err)
		}
		close(leave)
		wg.Wait()

		if err := db.Read(t.Context(), func(state.Tx) error { t.Error("f ran"); return nil }); !errors.Is(err, state.ErrClosed) {
			t.Errorf("Read returned %v", err)
		}
		if err := db.Changed(t.Context()); !errors.Is(err, state.ErrClosed) {
			t.Errorf("Changed returned %v", err)
		}
		if _, err := db.Alive(t.Context(), owner); !errors.Is(err, state.ErrClosed) {
			t.Errorf("Alive returned %v", err)
		}
		if err := db.Close(); err != nil {
			t.Errorf("the second Close returned %v", err)
		}
		if n := number(t, open(), `SELECT count(*) FROM things`); n != 0 {
			t.Errorf("%d rows", n)
		}
	})
}

// race adds to a common count until it is full, and says how often it did.
func race(place, callers string) error {
	ctx := context.Background()
	db, err := OpenPlace(ctx, place)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	var n int
	if _, err := fmt.Sscan(callers, &n); err != nil {
		return err
	}
	counts, errs := make([]int, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for rows := int64(1); rows == 1 && errs[i] == nil; {
				errs[i] = db.Write(ctx, func(tx state.Tx) (err error) {
					rows, err = tx.Exec(`UPDATE things SET n = n + 1 WHERE id = 1 AND n < 4000`)
					return err
				})
				counts[i] += int(rows)
			}
		})
	}
	wg.Wait()
	total := 0
	for _, count := range counts {
		total += count
	}
	fmt.Println(total)
	return errors.Join(append(errs, db.Close())...)
}

// Processes share the lock fairly. Waiting for SQLite's own lock does not fail
// this way or that: it just leaves some processes with nothing.
func TestProcessesTakeTurns(t *testing.T) {
	for _, callers := range []string{"1", "8"} {
		t.Run(callers, func(t *testing.T) {
			place := t.TempDir() + "/state.db"
			db := At(t, place)
			table(t, db)
			do(t, db, `INSERT INTO things (id, n) VALUES (1, 0)`)
			var racers []process
			for range 4 {
				p, _ := start(t, "race", place, callers)
				racers = append(racers, p)
			}
			for _, p := range racers {
				if _, err := io.WriteString(p.in, "go\n"); err != nil {
					t.Fatal(err)
				}
			}
			var counts []int
			total := 0
			for _, p := range racers {
				count := 0
				if !p.out.Scan() {
					t.Fatal("a process printed nothing")
				}
				if _, err := fmt.Sscan(p.out.Text(), &count); err != nil {
					t.Fatal(err)
				}
				counts = append(counts, count)
				total += count
			}
			if total != 4000 {
				t.Errorf("%d writes were granted, not 4000", total)
			}
			least, most := counts[0], counts[0]
			for _, count := range counts {
				least, most = min(least, count), max(most, count)
			}
			if least*4 < most {
				t.Errorf("unfair: %s", strings.Trim(fmt.Sprint(counts), "[]"))
			}
			t.Log(counts)
		})
	}
}
