package statetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ambit-run/ambit/internal/store/state"
	"github.com/ambit-run/ambit/internal/store/state/engine"
)

// The constant child names an environment variable. If it is set, a copy of this test program runs a helper
// instead of the tests.
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

// start starts a copy of this test program as a helper, and returns its first line of output.
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
		_ = p.Process.Kill() // the process may have exited already
		_ = p.Wait()
	})
	p.out = bufio.NewScanner(out)
	if !p.out.Scan() {
		t.Fatalf("the helper %q printed nothing", what)
	}
	return p, p.out.Text()
}

// hold opens a store, prints the name of its owner, and blocks inside a write.
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
				t.Errorf("Alive(%q) = %v, error %v; want %v", owner, alive, err, want)
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
			t.Errorf("Alive of the running process = %v, error %v; want true", alive, err)
		}
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = p.Wait() // the only possible error is that the process was killed
		// PostgreSQL notices the end of a process only after a moment.
		for alive := true; alive; {
			var err error
			if alive, err = db.Alive(t.Context(), owner); err != nil {
				t.Fatal(err)
			}
		}
		do(t, db, `INSERT INTO things (id) VALUES (2)`)
		if n := number(t, db, `SELECT id FROM things`); n != 2 {
			t.Errorf("got row %d, want only row 2", n)
		}
	})
}

// await waits until the row exists: it reads, and then waits for a change, until it finds the row.
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
	engine.WaitTime = time.Hour // with this time, only a commit can end a wait
	Each(t, func(t *testing.T, open func() state.DB) {
		db, other := open(), open()
		table(t, db)
		for id := range int64(10) {
			// The only waiter notices even a commit between its read and its wait.
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
		for ctx.Err() == nil { // Changed may still report earlier commits
			if err := db.Changed(ctx); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if err := db.Changed(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Changed returned the error %v, want context.Canceled", err)
		}
	})
}

func TestCanceled(t *testing.T) {
	Each(t, func(t *testing.T, open func() state.DB) {
		db := open()
		table(t, db)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		never := func(state.Tx) error { t.Error("the function of a canceled transaction ran"); return nil }
		if err := db.Write(gone, never); !errors.Is(err, context.Canceled) {
			t.Errorf("Write with a canceled context returned %v, want context.Canceled", err)
		}
		if err := db.Read(gone, never); !errors.Is(err, context.Canceled) {
			t.Errorf("Read returned %v", err)
		}

		// One write runs, one waits behind it, and the others are canceled.
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
				t.Errorf("the waiting Write returned %v, want context.Canceled", err)
			}
		})
		cancel()
		close(leave)
		wg.Wait()

		// If the context ends inside the function, the next statement fails. Only this write is undone.
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
		// If the context ends after the last statement, the changes are committed, and Write returns nil.
		ctx, cancel = context.WithCancel(t.Context())
		if err := db.Write(ctx, func(tx state.Tx) error { defer cancel(); return insert(tx, 5) }); err != nil {
			t.Errorf("Write returned %v", err)
		}
		if n := number(t, db, `SELECT CAST(sum(id) AS BIGINT) FROM things`); n != 1+2+5 {
			t.Errorf("the ids add up to %d, want 8", n)
		}
	})
}

func TestClosed(t *testing.T) {
	Each(t, func(t *testing.T, open func() state.DB) {
		db := open()
		owner := db.Owner()
		// Close lets a running write finish, and refuses waiting writes.
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
			t.Errorf("the waiting Changed returned %v, want ErrClosed", err)
		}
		if err := db.Write(t.Context(), func(state.Tx) error { t.Error("the function ran"); return nil }); !errors.Is(err, state.ErrClosed) {
			t.Errorf("Write on a closed store returned %v, want ErrClosed", err)
		}
		close(leave)
		wg.Wait()

		if err := db.Read(t.Context(), func(state.Tx) error { t.Error("the function ran"); return nil }); !errors.Is(err, state.ErrClosed) {
			t.Errorf("Read on a closed store returned %v, want ErrClosed", err)
		}
		if err := db.Changed(t.Context()); !errors.Is(err, state.ErrClosed) {
			t.Errorf("Changed on a closed store returned %v, want ErrClosed", err)
		}
		if _, err := db.Alive(t.Context(), owner); !errors.Is(err, state.ErrClosed) {
			t.Errorf("Alive on a closed store returned %v, want ErrClosed", err)
		}
		if err := db.Close(); err != nil {
			t.Errorf("the second Close returned %v, want no error", err)
		}
		if n := number(t, open(), `SELECT count(*) FROM things`); n != 0 {
			t.Errorf("got %d rows, want 0", n)
		}
	})
}

// race increments a shared counter until the counter reaches its limit. Then it prints the number
// of its own increments.
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

// Processes share the lock fairly. With SQLite's own lock no write would fail, but some processes would never
// get the lock.
func TestProcessesTakeTurns(t *testing.T) {
	for _, callers := range []string{"1", "8"} {
		t.Run(callers, func(t *testing.T) {
			var counts []int
			for range 5 { // on a busy machine, one of the processes can start late
				counts = raceProcesses(t, callers)
				if 4*slices.Min(counts) >= slices.Max(counts) {
					return
				}
			}
			t.Errorf("the processes did not share the lock fairly: they made %s increments", strings.Trim(fmt.Sprint(counts), "[]"))
		})
	}
}

// raceProcesses lets four processes increment a number 4,000 times in all, and returns how often each of them did.
func raceProcesses(t *testing.T, callers string) (counts []int) {
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
		t.Errorf("the processes made %d increments, want 4000", total)
	}
	return counts
}
