package statetest

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Database makes a PostgreSQL database for a program that is no test, such as a
// benchmark, and returns its URL. The server ends with the program.
func Database(ctx context.Context) (string, error) {
	s, err := server()
	if err != nil {
		return "", err
	}
	conn, err := pgx.Connect(ctx, at(s.dir, "postgres"))
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	name := "b" + strings.ToLower(rand.Text())
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", err
	}
	return at(s.dir, name), nil
}
