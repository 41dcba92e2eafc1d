package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/ambit-run/ambit/internal/cli"
)

// openProvider starts an OpenID provider: a pinned version of the npm package oidc-provider. Its access tokens expire
// after ttl, which is a number of seconds.
func openProvider(t *testing.T, ttl string) (issuer string) {
	t.Helper()
	return startProvider(t, "device.mjs", ttl)
}

// startProvider starts a program in the folder of the provider. The program prints its address.
func startProvider(t *testing.T, program, ttl string) (issuer string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", program, ".npmrc"} {
		text, err := os.ReadFile(filepath.Join("..", "store", "identity", "testdata", "provider", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the provider cannot be installed: %v\n%s", err, out)
		}
		t.Skipf("the provider cannot be installed: %v", err)
	}
	provider := exec.CommandContext(t.Context(), "node", program)
	provider.Dir, provider.Env = dir, append(os.Environ(), "TOKEN_TTL="+ttl)
	in, err := provider.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := provider.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	provider.Stderr = &log
	if err := provider.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = provider.Wait() // Wait fails if the end of the test killed the provider
		if t.Failed() {
			t.Logf("the provider wrote:\n%s", log.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the provider did not start: %v\n%s", err, log.String())
	}
	return strings.TrimSpace(line)
}

// person opens a page and submits its forms, as a person with a browser would. If agrees is false, person refuses on
// the first page that asks for consent.
func person(t *testing.T, page string, agrees bool) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Timeout: time.Minute}
	resp, err := browser.Get(page)
	for range 10 {
		if err != nil {
			t.Fatal(err)
		}
		doc, parseErr := html.Parse(resp.Body)
		resp.Body.Close()
		if parseErr != nil || resp.StatusCode >= 400 {
			t.Fatalf("the page %s has the status %s, %v", resp.Request.URL, resp.Status, parseErr)
		}
		action, fields, found := formOf(doc, agrees)
		if !found {
			return
		}
		to, parseErr := resp.Request.URL.Parse(action)
		if parseErr != nil {
			t.Fatal(parseErr)
		}
		resp, err = browser.PostForm(to.String(), fields)
		if err == nil && fields.Has("abort") {
			resp.Body.Close()
			return
		}
	}
	t.Fatal("there are still forms after 10 pages")
}

// formOf returns the first form of a page, with its fields filled in.
func formOf(doc *html.Node, agrees bool) (action string, fields url.Values, found bool) {
	fields = url.Values{}
	for n := range doc.Descendants() {
		attr := func(name string) string {
			for _, a := range n.Attr {
				if a.Key == name {
					return a.Val
				}
			}
			return ""
		}
		switch {
		case n.Type != html.ElementNode:
		case n.Data == "form" && !found:
			action, found = attr("action"), true
		case n.Data == "input" && attr("name") != "":
			value := attr("value")
			if attr("name") == "login" || attr("name") == "password" {
				value = "ada"
			}
			fields.Set(attr("name"), value)
		case n.Data == "button" && attr("name") == "abort" && !agrees:
			fields.Set("abort", attr("value"))
		}
	}
	return action, fields, found
}

// ambit runs one command line.
func ambit(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = cli.Run(t.Context(), args, strings.NewReader(""), &o, &e)
	return code, o.String(), e.String()
}

// signIn runs ambit login, and signs in on the page that ambit prints.
func signIn(t *testing.T, issuer string, agrees bool, more ...string) (code int, out, errOut string) {
	t.Helper()
	r, w := io.Pipe()
	var o bytes.Buffer
	done := make(chan int, 1)
	go func() {
		done <- cli.Run(t.Context(), append([]string{"login", "--issuer", issuer, "--client-id", "ambit", "--json"}, more...), strings.NewReader(""), &o, w)
		w.Close()
	}()
	var all strings.Builder
	lines := bufio.NewScanner(r)
	complete := regexp.MustCompile(`^or open (\S+)$`)
	for lines.Scan() {
		all.WriteString(lines.Text() + "\n")
		if m := complete.FindStringSubmatch(lines.Text()); m != nil {
			person(t, m[1], agrees)
		}
	}
	return <-done, o.String(), all.String()
}

func TestLoginAtARealProvider(t *testing.T) {
	// The provider issues tokens that expire after 20 seconds. ambit treats them as expired, so each use renews them.
	issuer := openProvider(t, "20")
	home := t.TempDir()
	t.Setenv("AMBIT_HOME", home)

	code, out, errOut := signIn(t, issuer, true)
	var doc struct {
		Issuer, Subject, Ref string
		Scopes               []string
		Renewable            bool
		ExpiresAt            time.Time `json:"expires_at"`
	}
	if err := json.Unmarshal([]byte(out), &doc); code != 0 || err != nil {
		t.Fatalf("exit %d, %v\n%s\n%s", code, err, out, errOut)
	}
	host := strings.TrimPrefix(issuer, "http://")
	if doc.Issuer != issuer || doc.Subject != "ada" || !doc.Renewable || doc.Ref != "login:"+host || doc.ExpiresAt.IsZero() {
		t.Errorf("got %s", out)
	}
	if !regexp.MustCompile(`^open \S+/device and enter the code [A-Z]{4}-[A-Z]{4}\n`).MatchString(errOut) {
		t.Errorf("got the message %s, want the address of the page and a code", errOut)
	}
	if _, out, _ := ambit(t, "secret", "list"); !strings.Contains(out, doc.Ref) {
		t.Errorf("secret list: %s", out)
	}

	// Several commands run at the same time. Each renews the sign-in with the refresh token that the previous
	// command received.
	tokens := make([]string, 4)
	var wait sync.WaitGroup
	for i := range tokens {
		wait.Go(func() {
			code, out, errOut := ambit(t, "login", "token")
			if code != 0 {
				t.Errorf("exit %d: %s", code, errOut)
			}
			tokens[i] = strings.TrimSpace(out)
		})
	}
	wait.Wait()
	seen := map[string]bool{}
	for _, token := range tokens {
		if seen[token] || token == "" {
			t.Error("the token was not renewed")
		}
		seen[token] = true
		if got := userinfo(t, issuer, token); got != http.StatusOK {
			t.Errorf("the provider answers a renewed token with the status %d, want 200", got)
		}
	}
	if kept, err := os.ReadFile(filepath.Join(home, "secrets")); err != nil || bytes.Contains(kept, []byte(tokens[0])) {
		t.Errorf("the vault cannot be read, or contains the token in plain text: %v", err)
	}
	if strings.Contains(out+errOut, tokens[0]) {
		t.Error("ambit login printed a token")
	}

	_, last, _ := ambit(t, "login", "token", "--issuer", issuer)
	if code, out, _ := ambit(t, "logout", "--json"); code != 0 || !strings.Contains(out, `"revoked": true`) {
		t.Errorf("logout: %d %s", code, out)
	}
	if got := userinfo(t, issuer, strings.TrimSpace(last)); got != http.StatusUnauthorized {
		t.Errorf("after logout, the provider answers the token with the status %d, want 401", got)
	}
	if code, out, _ := ambit(t, "login", "token"); code != 1 || out != "" {
		t.Errorf("after logout, ambit login token exits with %d, want 1 and no output: %s", code, out)
	}
}

// userinfo sends a request with the token to the provider. It returns the status of the answer.
func userinfo(t *testing.T, issuer, token string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, issuer+"/me", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestLoginRefusedAtARealProvider(t *testing.T) {
	issuer := openProvider(t, "600")
	t.Setenv("AMBIT_HOME", t.TempDir())
	code, out, errOut := signIn(t, issuer, false)
	if code != 1 || !strings.Contains(out, "the sign-in was denied") {
		t.Errorf("exit %d\n%s\n%s", code, out, errOut)
	}
	if code, _, errOut := ambit(t, "login", "--issuer", issuer, "--client-id", "user"); code != 1 || !strings.Contains(errOut, `the provider returned the error "invalid_client"`) {
		t.Errorf("with an unknown client id, ambit login exits with %d, want 1 and the provider's error: %s",
			code, errOut)
	}
}
