package guard_test

import (
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard"
)

// A private key that arrives line by line is hidden. The lines before and after the key are not hidden.
func TestKeyLines(t *testing.T) {
	var k guard.KeyLines
	var out []string
	for line := range strings.SplitSeq("reading:\nkey "+pem+" done\nnext\n-----BEGIN "+"PRIVATE KEY----- is missing\nnext\n"+strings.ReplaceAll(pem, "\n", " ")+"\nnext", "\n") {
		out = append(out, k.Hide(line))
	}
	const hidden = "[secret:private-key]"
	want := "reading:\nkey " + hidden + "\n" + hidden + "\n" + hidden + "\n" + hidden + " done\nnext\n" + hidden + "\nnext\n" + strings.ReplaceAll(pem, "\n", " ") + "\nnext"
	if got := strings.Join(out, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
