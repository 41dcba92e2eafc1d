package gitleaks

import (
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
)

// token is split in this file, so that scanners do not report it as a leaked secret.
var token = "gh" + "p_" + "x7Kq2Vd9RmT4wLz8NcB1yHf6GsJ3uPe5aQoZ"

func scan(t *testing.T, text string) []secret.Match {
	t.Helper()
	return secret.Standard().Scan([]byte(text), nil, nil)
}
