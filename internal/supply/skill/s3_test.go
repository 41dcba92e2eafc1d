package skill

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The expected signatures come from the examples that AWS publishes for Signature Version 4 and S3.
func TestSignAsPublished(t *testing.T) {
	at := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	tests := []struct{ name, url, header, want string }{
		{"object", "https://examplebucket.s3.amazonaws.com/test.txt", "bytes=0-9", "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
		{"list", "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J", "", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
		{"setting", "https://examplebucket.s3.amazonaws.com/?lifecycle=", "", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tt.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			if tt.header != "" {
				req.Header.Set("Range", tt.header)
			}
			// AWS publishes these keys with the examples. They are not real.
			sign(req, emptyHash, "AKIA"+"IOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/"+"bPxRfiCYEXAMPLEKEY", "us-east-1", at)
			if got := req.Header.Get("Authorization"); !strings.HasSuffix(got, "Signature="+tt.want) {
				t.Errorf("got %s, want the signature %s", got, tt.want)
			}
		})
	}
}

// lacks skips a test because something that it needs is unavailable. In CI, the test fails instead.
func lacks(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

const (
	accessKey = "ACCESS"
	secretKey = "canary-secret"
)

// realS3 starts an S3 server that checks signatures, and returns its address.
func realS3(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "s3server.exe")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
	build.Dir, build.Env = filepath.Join("testdata", "s3"), append(os.Environ(), "GOFLAGS=-mod=readonly", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		lacks(t, "the S3 server cannot be built: %v\n%s", err, out)
	}
	server := exec.CommandContext(t.Context(), program, accessKey)
	server.Env = append(os.Environ(), "SECRET_KEY="+secretKey)
	in, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	server.Stderr = &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = server.Wait() // ignore the error, because the test's context may have killed the server already
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the S3 server did not start: %v\n%s", err, log.String())
	}
	return strings.TrimSpace(address)
}

// keys returns the credential with the name ref: "id" and "key" are valid on the server, and
// "wrong" is not.
func keys(ref, _ string) (string, error) {
	return map[string]string{"id": accessKey, "key": secretKey, "wrong": "canary-71c2"}[ref], nil
}

// put stores an object in the bucket named skills.
func put(t *testing.T, endpoint, key, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, endpoint+"/skills"+escape("/"+key), strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(text))
	sign(req, hex.EncodeToString(sum[:]), accessKey, secretKey, "us-east-1", time.Now())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("storing %s: %s", key, resp.Status)
	}
}

func TestStoreOnS3(t *testing.T) { storeOnS3(t, realS3(t)) }

func storeOnS3(t *testing.T, endpoint string) {
	put(t, endpoint, "team a+b/é/one/SKILL.md", good("one"))
	put(t, endpoint, "team a+b/é/.cursor/rules/it's (so) & so=1.mdc", "Rule.\n")
	put(t, endpoint, "team a+b/é/notes.txt", "not a skill")
	put(t, endpoint, "team a+b/éclair/two/SKILL.md", good("two"))
	c := &StoreConfig{Endpoint: endpoint, Bucket: "skills", Region: "us-east-1", AccessKey: "id", SecretKey: "key"}
	open := func(c *StoreConfig, key string) *Store {
		t.Helper()
		s, err := c.Open(key, keys)
		if err != nil {
			t.Fatal(err)
		}
		s.client.pause = func(context.Context, time.Duration) error { return nil }
		return s
	}
	b, err := Read(t.Context(), open(c, "team a+b/é"), declare("one", "it-s-so-so-1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.Skill("one").Text; got != "# Title\n\nDo one." {
		t.Errorf("got %q", got)
	}
	if b.Others != 1 {
		t.Errorf("got %d files that are not skills, want 1", b.Others)
	}
	if _, err := Read(t.Context(), open(c, "nothing"), declare("one"), nil); !errors.Is(err, ErrNoBundle) {
		t.Errorf("a key without objects: got %v, want %v", err, ErrNoBundle)
	}
	wrong := *c
	wrong.SecretKey = "wrong"
	if _, err := Read(t.Context(), open(&wrong, "team a+b/é"), declare("one"), nil); err == nil || !strings.Contains(err.Error(), "the skill store returned status 403") {
		t.Errorf("a wrong secret key: got %v, want status 403", err)
	}
	elsewhere := *c
	elsewhere.Bucket = "nowhere"
	if _, err := Read(t.Context(), open(&elsewhere, "x"), declare("one"), nil); err == nil || !strings.Contains(err.Error(), "NoSuchBucket") {
		t.Errorf("an unknown bucket: got %v, want NoSuchBucket", err)
	}
	// The server returns the list of this bundle in several pages.
	for i := range 1100 {
		put(t, endpoint, fmt.Sprintf("many/f%04d.txt", i), "x")
	}
	put(t, endpoint, "many/z/SKILL.md", good("z"))
	if b, err = Read(t.Context(), open(c, "many"), declare("z"), nil); err != nil || b.Others != 1100 {
		t.Errorf("a list of several pages: got %+v, %v; want 1100 files that are not skills", b, err)
	}
}

// hostile returns a store on a server that gives invalid responses.
func hostile(t *testing.T, answer http.HandlerFunc) *Store {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	c := &StoreConfig{Endpoint: server.URL, Bucket: "skills", Region: "auto", AccessKey: "id", SecretKey: "wrong"}
	s, err := c.Open("b", keys)
	if err != nil {
		t.Fatal(err)
	}
	s.client.pause = func(context.Context, time.Duration) error { return nil }
	return s
}

// page returns an S3 list response with the given content.
func page(contents string) string { return "<ListBucketResult>" + contents + "</ListBucketResult>" }

func TestStoreRefusesPaths(t *testing.T) {
	for _, key := range []string{"b/../secret/SKILL.md", "b//SKILL.md", "b/./SKILL.md", "other/SKILL.md", "b/x\\..\\SKILL.md", "b//etc/SKILL.md", "b/..", "b/x/../../SKILL.md"} {
		t.Run(key, func(t *testing.T) {
			asked := []string{}
			s := hostile(t, func(w http.ResponseWriter, r *http.Request) {
				asked = append(asked, r.URL.Path)
				io.WriteString(w, page("<Contents><Key>"+key+"</Key><Size>5</Size></Contents>"))
			})
			_, err := Read(t.Context(), s, declare("one"), nil)
			if err == nil || !strings.Contains(err.Error(), "the object's name is not a valid path inside the bundle") {
				t.Errorf("got the error %v, want one about the name of the object", err)
			}
			if !slices.Equal(asked, []string{"/skills"}) {
				t.Errorf("the server got requests for %q, want only the list", asked)
			}
		})
	}
}

func TestStoreHostile(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	one := page("<Contents><Key>b/one/SKILL.md</Key><Size>5</Size></Contents>")
	tests := []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, "the skill store returned status 307"},
		{"not XML", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }, "not a valid S3 response"},
		{"repeated token", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, page("<IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>"))
		}, "token for the next page"},
		{"larger than declared", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RawQuery != "" {
				io.WriteString(w, one)
				return
			}
			io.WriteString(w, strings.Repeat("x", maxDocument+1))
		}, "larger than 1048576 bytes"},
		{"too many files", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, page(strings.Repeat("<Contents><Key>b/x</Key></Contents>", maxFiles+1)))
		}, "more than 10000 files"},
		{"control characters", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, "<Error><Code>\u202e\u009b2J</Code></Error>")
		}, `403 for skills: \u202e\u009b2J`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Read(t.Context(), hostile(t, tt.answer), declare("one"), nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got the error %v, want %q", err, tt.want)
			}
		})
	}
}

// A request to a busy store is retried, and sent at most 3 times.
func TestStoreAsksAgain(t *testing.T) {
	for _, tt := range []struct{ bad, asked int }{{2, 3}, {5, attempts}} {
		asked := 0
		s := hostile(t, func(w http.ResponseWriter, _ *http.Request) {
			if asked++; asked <= tt.bad {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			io.WriteString(w, page("<Contents><Key>b/one/SKILL.md</Key><Size>5</Size></Contents>"))
		})
		_, err := s.List(t.Context())
		if (err == nil) != (tt.bad < attempts) || asked != tt.asked {
			t.Errorf("a store that is busy %d times got %d requests, want %d; error %v", tt.bad, asked, tt.asked, err)
		}
	}
}

func TestStoreShowsNoKey(t *testing.T) {
	s := hostile(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	_, err := s.List(t.Context())
	for _, shown := range []string{fmt.Sprintf("%v", err), fmt.Sprintf("%+v %#v", s, s), fmt.Sprintf("%+v", *s.client)} {
		if strings.Contains(shown, "canary-71c2") {
			t.Errorf("the output contains the key: %s", shown)
		}
	}
}

func TestReadStore(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"none", "[oidc]\nissuer = \"x\"\n", ""},
		{"good", "[skills]\nendpoint = \"https://x.example.com\"\nbucket = \"b\"\n", ""},
		{"loopback", "[skills]\nendpoint = \"http://127.0.0.1:9000\"\nbucket = \"b\"\n", ""},
		{"http to a remote host", "[skills]\nendpoint = \"http://x.example.com\"\nbucket = \"b\"\n", "must begin with https://"},
		{"no bucket", "[skills]\nendpoint = \"https://x.example.com\"\n", "both required"},
		{"no URL", "[skills]\nendpoint = \"x.example.com\"\nbucket = \"b\"\n", "not a valid http or https URL"},
		{"credential", "[skills]\nendpoint = \"https://me:canary@x.example.com\"\nbucket = \"b\"\n", "contains a credential"},
		{"key instead of a reference", "[skills]\nendpoint = \"https://x.example.com\"\nbucket = \"b\"\nsecret_key = \"canary\"\n", "there is no setting secret_key"},
		{"wrong type", "[skills]\nendpoint = \"https://x.example.com\"\nbucket = [\"canary\"]\n", "wrong type"},
		{"invalid bucket", "[skills]\nendpoint = \"https://x.example.com\"\nbucket = \"../b\"\n", "not a valid bucket name"},
		{"invalid reference", "[skills]\nendpoint = \"https://x.example.com\"\nbucket = \"b\"\nsecret_key_ref = \"analytics_token\"\n", "must start with \"skills:\""},
		{"invalid syntax", "[skills\n", "config.toml"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.toml")
			if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := ReadStore(file)
			switch {
			case tt.want != "":
				if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "canary") {
					t.Errorf("got the error %v, want %q without the credential", err, tt.want)
				}
			case err != nil || (c == nil) != (tt.name == "none"):
				t.Errorf("got %+v, %v", c, err)
			case c != nil && (c.Region != "auto" || c.AccessKey != "skills:access_key" || !c.Covered(nil) || c.Covered([]string{"other.example.com"})):
				t.Errorf("got %+v", c)
			}
		})
	}
	if c, err := ReadStore(filepath.Join(t.TempDir(), "nothing")); c != nil || err != nil {
		t.Errorf("a missing file: got %v, %v; want nil, nil", c, err)
	}
}
