package postgres

import "testing"

func TestUnproven(t *testing.T) {
	for _, tt := range []struct{ mode, url, want string }{
		{"", "postgres://u@db/x", "db"},
		{"", "postgres://u@db/x?sslmode=disable", "db"},
		{"", "postgres://u@db/x?sslmode=allow", "db"},
		{"", "postgres://u@db/x?sslmode=prefer", "db"},
		{"", "postgres://u@db/x?sslmode=require", "db"},
		// verify-ca accepts every certificate from the same authority.
		{"", "postgres://u@db/x?sslmode=verify-ca", "db"},
		{"", "postgres://u@db/x?sslmode=verify-full", ""},
		{"", "postgres://u@db/x?sslrootcert=system", ""},
		{"verify-full", "postgres://u@db/x", ""},
		{"verify-full", "postgres://u@db/x?sslmode=require", "db"},
		{"", "postgres://u@127.0.0.1,db/x", "db"},
		{"", "postgres://u@localhost,db/x?sslmode=verify-full", ""},
		{"", "postgres://u@192.0.2.1/x", "192.0.2.1"},
		{"", "postgres://u@127.0.0.1/x", ""},
		{"", "postgres://u@[::1]/x?sslmode=disable", ""},
		{"", "postgres://u@localhost/x", ""},
		{"", "postgres://u@/x?host=/run/postgresql", ""},
		{"", "postgres://u@/x?host=db", "db"},
		{"", "postgres://u@db/x?sslmode=wrong", ""},
	} {
		t.Setenv("PGSSLMODE", tt.mode)
		if got := Unproven(tt.url); got != tt.want {
			t.Errorf("with PGSSLMODE=%s, Unproven(%s) = %q, want %q", tt.mode, tt.url, got, tt.want)
		}
	}
}
