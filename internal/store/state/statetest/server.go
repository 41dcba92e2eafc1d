package statetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

var errMissing = errors.New(
	"PostgreSQL is not installed: put initdb and postgres on PATH (on Debian: apt install postgresql)")

// database creates a database for one test and returns the URL of the database.
func database(t testing.TB) string {
	t.Helper()
	s, err := server()
	if errors.Is(err, errMissing) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	name := "t" + strings.ToLower(rand.Text())
	if err := s.exec(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	return at(s.dir, name)
}

type running struct {
	dir  string
	held io.Closer // closing this pipe stops the server
}

func (s running) exec(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, at(s.dir, "postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	return err
}

func at(dir, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("ambit"), Path: "/" + database}
	u.RawQuery = url.Values{"host": {dir}}.Encode()
	return u.String()
}

// server starts PostgreSQL on the first call. The pipe s.held stays open until this program exits. A shell waits until
// the pipe is closed. The shell then stops PostgreSQL and removes the folder s.dir.
var server = sync.OnceValues(func() (s running, err error) {
	initdb, postgres, err := findPrograms()
	if err != nil {
		return s, err
	}
	if s.dir, err = os.MkdirTemp("", "ambit-pg-"); err != nil {
		return s, err
	}
	as, err := unprivileged(s.dir)
	if err != nil {
		return s, err
	}
	// The shell outlives this program, but only to clean up.
	cmd := exec.Command("sh", "-c", `
		"$1" -D "$3/data" -U ambit -A trust -E UTF8 --no-locale --no-sync >"$3/log" 2>&1 &&
		"$2" -D "$3/data" -k "$3" -c listen_addresses= -c max_connections=300 >>"$3/log" 2>&1 &
		cat >/dev/null
		kill -QUIT "$(head -n 1 "$3/data/postmaster.pid")"
		wait
		rm -rf "$3"`, "sh", initdb, postgres, s.dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = as
	if s.held, err = cmd.StdinPipe(); err != nil {
		return s, err
	}
	if err := cmd.Start(); err != nil {
		return s, err
	}
	return s, waitReady(s.dir)
})

// waitReady waits until the server with the socket in dir accepts connections.
func waitReady(dir string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		var conn *pgx.Conn
		if conn, err = pgx.Connect(ctx, at(dir, "postgres")); err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	log, _ := os.ReadFile(filepath.Join(dir, "log"))
	return fmt.Errorf("PostgreSQL did not start within a minute: %w\n%s", err, log)
}

// findPrograms finds initdb and postgres, on PATH or in Debian's directories.
func findPrograms() (initdb, postgres string, err error) {
	folders, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", "", err
	}
	slices.Reverse(folders) // try the newest version first
	if on, err := exec.LookPath("initdb"); err == nil {
		folders = append([]string{filepath.Dir(on)}, folders...)
	}
	for _, folder := range folders {
		initdb, postgres = filepath.Join(folder, "initdb"), filepath.Join(folder, "postgres")
		_, err1 := os.Stat(initdb)
		_, err2 := os.Stat(postgres)
		if err1 == nil && err2 == nil {
			return initdb, postgres, nil
		}
	}
	return "", "", errMissing
}
