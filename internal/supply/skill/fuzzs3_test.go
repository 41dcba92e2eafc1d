package skill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/egress"
)

// constant is an S3 server that gives the same response to every request.
type constant struct {
	status int
	text   []byte
	asked  int
}

func (s *constant) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.asked++; s.asked > 3*maxFiles {
		return nil, errors.New("the client does not stop sending requests")
	}
	return &http.Response{StatusCode: s.status, Status: fmt.Sprint(s.status), Request: r, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(s.text))}, nil
}

// storeOn returns a store on the server s.
func storeOn(s *constant) *Store {
	return &Store{key: "bundle", client: &s3{
		endpoint: &url.URL{Scheme: "https", Host: "s3.example.com"}, bucket: "b", region: "auto",
		keys: func() (string, string) { return "canary-access", "canary-secret" }, http: &http.Client{Transport: s},
		now: func() time.Time { return time.Unix(0, 0) }, pause: func(context.Context, time.Duration) error { return nil },
	}}
}

// FuzzList lists a store with any response from the server. Listing must end and return at most
// maxFiles files. It must not return a path outside the bundle or reveal a credential.
func FuzzList(f *testing.F) {
	for _, text := range []string{
		`<ListBucketResult><Contents><Key>bundle/SKILL.md</Key><Size>12</Size></Contents></ListBucketResult>`,
		`<ListBucketResult><Contents><Key>bundle/../../etc/passwd</Key></Contents><Contents><Key>other/x</Key></Contents></ListBucketResult>`,
		`<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken></ListBucketResult>`,
		`<ListBucketResult><Contents><Key>bundle/a&#x202e;b\c</Key><Size>-1</Size></Contents><Contents><Key>bundle/folder/</Key></Contents></ListBucketResult>`,
		`<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><ListBucketResult><Contents><Key>&b;</Key></Contents></ListBucketResult>`,
		`<Error><Code>AccessDenied</Code></Error>`,
		`<Error><Code>` + "\u202e\u009b" + `</Code></Error>`,
		strings.Repeat("<a>", 5000),
	} {
		f.Add(200, []byte(text))
		f.Add(403, []byte(text))
		f.Add(500, []byte(text))
	}
	f.Fuzz(func(t *testing.T, status int, text []byte) {
		s := &constant{status: 100 + min(max(status, 0), 499), text: text}
		files, err := storeOn(s).List(t.Context())
		if err != nil {
			if strings.Contains(err.Error(), "canary") || strings.ContainsAny(err.Error(), "\x1b\u202e\u009b\n") {
				t.Errorf("the error contains a credential or control characters: %q", err)
			}
			return
		}
		if len(files) > maxFiles {
			t.Errorf("got %d files, want at most %d", len(files), maxFiles)
		}
		for _, file := range files {
			if file.Refused == "" && (!fs.ValidPath(file.Path) || !filepath.IsLocal(file.Path) || strings.ContainsAny(file.Path, "\\\x00")) {
				t.Errorf("List returned %q as a file of the bundle", file.Path)
			}
		}
	})
}

// turning is an S3 server that returns empty pages without end, alternating between two tokens.
type turning struct{ asked int }

func (s *turning) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.asked++; s.asked > 10*maxFiles {
		return nil, errors.New("the client does not stop sending requests")
	}
	text := fmt.Sprintf(`<R><IsTruncated>true</IsTruncated><NextContinuationToken>%d</NextContinuationToken></R>`, s.asked%2)
	return &http.Response{StatusCode: 200, Request: r, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text))}, nil
}

// List returns an error if a store returns empty pages without end.
func TestListEnds(t *testing.T) {
	s := storeOn(&constant{})
	endless := &turning{}
	s.client.http.Transport = endless
	if _, err := s.List(t.Context()); err == nil || endless.asked > maxFiles {
		t.Errorf("List requested %d pages and returned %v, want an error after at most %d pages", endless.asked, err, maxFiles)
	}
}

// FuzzStoreConfig checks that ReadStore accepts only an https or loopback endpoint without a credential.
// The names of credentials must begin with "skills:".
func FuzzStoreConfig(f *testing.F) {
	for _, text := range []string{
		"[skills]\nendpoint = \"https://s3.example.com\"\nbucket = \"b\"\n",
		"[skills]\nendpoint = \"http://127.0.0.1:9000\"\nbucket = \"b\"\nregion = \"eu\"\n",
		"[skills]\nendpoint = \"http://evil.example\"\nbucket = \"b\"\n",
		"[skills]\nendpoint = \"https://a:b@s3.example.com\"\nbucket = \"..\"\naccess_key_ref = \"login:x\"\n",
		"skills = 3\n", "[skills]\nendpont = \"x\"\n", "[[skills]]\n",
	} {
		f.Add([]byte(text))
	}
	file := filepath.Join(f.TempDir(), "config.toml")
	f.Fuzz(func(t *testing.T, text []byte) {
		os.Remove(file) // overwriting the file instead could wait for the disk
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := ReadStore(file)
		if err != nil || c == nil {
			return
		}
		u, err := url.Parse(c.Endpoint)
		if err != nil || u.User != nil || u.Scheme != "https" && !egress.IsLoopback(u.Hostname()) || c.Host() == "" && u.Host == "" {
			t.Errorf("ReadStore accepted the endpoint %q", c.Endpoint)
		}
		if !strings.HasPrefix(c.AccessKey, refPrefix) || !strings.HasPrefix(c.SecretKey, refPrefix) || strings.ContainsAny(c.Bucket, "/?#") {
			t.Errorf("ReadStore accepted invalid credential names or an invalid bucket: %+v", c)
		}
	})
}
