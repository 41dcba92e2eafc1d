package pack

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// The error for a failed client contains the reason from the client's output. The error contains no
// other output lines and no passwords.
func TestExplain(t *testing.T) {
	for _, c := range []struct {
		name, said string
		signs      []symptom
		code       Code
		want       string
	}{
		{"npm 11", "npm warn old\nnpm error code ETARGET\nnpm error notarget No matching version found for x@9.\nnpm error notarget In most cases you\nnpm error A complete log of this run", npmSymptoms, NotFound, "npm says: No matching version found for x@9."},
		{"npm 9", "npm ERR! code E404\nnpm ERR! 404 Not Found - GET https://user:secret@registry.example/x\nnpm ERR! 404 ", npmSymptoms, NotFound, "npm says: Not Found - GET https://registry.example/x"},
		{"no network", "npm error code ENOTFOUND\nnpm error errno ENOTFOUND\nnpm error network request failed", npmSymptoms, FetchFailed, "npm says: network request failed"},
		{"a stack", "npm error code ECONNREFUSED\nnpm error FetchError: request failed\nnpm error     at ClientRequest.<anonymous> (/usr/lib/x.js:1:2)\nnpm error is it there?", npmSymptoms, FetchFailed, "npm says: FetchError: request failed; is it there?"},
		{"a full disk", "npm error code ENOSPC\nnpm error nospc ENOSPC: no space left on device, write", npmSymptoms, StoreFailed, "nospc ENOSPC"},
		{"integrity", "npm error code EINTEGRITY\nnpm error sha512-x integrity checksum failed", npmSymptoms, DigestMismatch, "checksum failed"},
		{"an escape sequence", "npm error \x1b[31mred\n", npmSymptoms, FetchFailed, `\u001b[31mred`},
		{"silence", "", npmSymptoms, FetchFailed, "npm: broken"},
		{"no pip", "/usr/bin/python3: No module named pip\n", pipSymptoms, RuntimeMissing, "No module named pip"},
		{"no index", "WARNING: Retrying (Retry(total=4)) after connection broken\nERROR: Could not find a version that satisfies x", pipSymptoms, FetchFailed, "ERROR: Could not find"},
	} {
		err := explain(c.signs, "x@9", &clientError{client: "npm", said: c.said, err: errors.New("broken")})
		if !errors.Is(err, c.code) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") || HintOf(err) == "" {
			t.Errorf("%s: got the code %s and the error %v, want %s and %q with a hint", c.name, CodeOf(err), err, c.code, c.want)
		}
	}
	err := explain(npmSymptoms, "x", &clientError{client: "npm", said: "npm error code E404", err: context.Canceled})
	if !errors.Is(err, FetchFailed) || !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted client: got %v, want %s and %v", err, FetchFailed, context.Canceled)
	}
	long := (&clientError{client: "npm", said: strings.Repeat("x", 3000), err: errors.New("broken")}).Error()
	if len(long) > 500 {
		t.Errorf("the error has %d bytes, want at most 500", len(long))
	}
	var end tail
	for range 3 {
		_, _ = end.Write([]byte(strings.Repeat("x", maxTail-1) + "."))
	}
	if len(end.b) != maxTail || end.b[maxTail-1] != '.' {
		t.Errorf("the tail has %d bytes, want the last %d", len(end.b), maxTail)
	}
}
