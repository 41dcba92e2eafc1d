//go:build unix

package docs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is the longest time that a block may take on a busy machine.
const patience = 5 * time.Minute

// shell runs the commands of one page in one bash. The home is empty except for a copy of the agents
// that ship with ambit.
type shell struct {
	t      *testing.T
	dir    string // the reader's working directory
	home   string
	port   string // the port of the page's daemon, after it has started
	in     io.Writer
	status *bufio.Reader
	blocks int
	jobs   []int // process groups

	link    string // the last link to the console
	browser *http.Client
	pages   string // the prefix of the addresses in the session
}

// standIn lets pages run in parallel: a daemon without --listen uses a free port, and [shell.printed]
// replaces this port with 7411. The daemon writes to a pipe, because it does not write sign-in links to files.
const standIn = `set -e -o pipefail
ambit() {
	if [ "${1-}" = serve ] && [[ " $* " != *" --listen "* ]]; then
		command ambit serve --listen 127.0.0.1:0 "${@:2}" > >(cat)
	else
		command ambit "$@"
	fi
}
`

func newShell(t *testing.T, bin, place string, env []string) *shell {
	t.Helper()
	home := t.TempDir()
	s := &shell{t: t, home: home, dir: filepath.Join(home, "ambit")}
	if err := os.CopyFS(filepath.Join(s.dir, "agents"), os.DirFS(filepath.Join("..", "..", "..", "agents"))); err != nil {
		t.Fatal(err)
	}
	fromShell, status, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "--noprofile", "--norc")
	cmd.Dir, cmd.ExtraFiles = s.dir, []*os.File{status}
	if place == "agents" { // a page in this directory uses the files in the same directory
		cmd.Dir = filepath.Join(s.dir, place)
	}
	cmd.Env = append([]string{
		"HOME=" + home, "PATH=" + bin + ":" + os.Getenv("PATH"), "NO_COLOR=1", "LANG=C.UTF-8", "USER=you",
		"GORACE=atexit_sleep_ms=0", "TMPDIR=" + t.TempDir(),
	}, append(passedOn(), env...)...)
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	s.in, s.status = in, bufio.NewReader(fromShell)
	_ = status.Close() // bash has its own copy of the pipe
	t.Cleanup(func() {
		s.end()
		_ = in.Close()
		_ = cmd.Wait() // a failed command may have ended bash
		_ = fromShell.Close()
	})
	s.send(standIn)
	return s
}

// passedOn returns the variables that package managers need to reach their mirrors.
func passedOn() []string {
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		switch strings.ToLower(name) {
		case "http_proxy", "https_proxy", "no_proxy", "npm_config_registry", "pip_index_url", "node_extra_ca_certs", "ssl_cert_file", "npm_config_userconfig", "pip_config_file":
			env = append(env, v)
		}
	}
	return env
}

func (s *shell) send(text string) {
	if _, err := io.WriteString(s.in, text); err != nil {
		s.t.Fatal(err)
	}
}

// end kills the processes that the page left running.
func (s *shell) end() {
	for _, group := range s.jobs {
		_ = syscall.Kill(-group, syscall.SIGTERM)
		for deadline := time.Now().Add(time.Minute); syscall.Kill(-group, 0) == nil; {
			if time.Now().After(deadline) {
				_ = syscall.Kill(-group, syscall.SIGKILL)
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func (s *shell) do(path string, st step) {
	s.t.Helper()
	at := fmt.Sprintf("%s:%d", path, st.line)
	switch st.kind {
	case file:
		name, ok := strings.CutPrefix(st.name, "~/")
		if name = filepath.Join(s.home, name); !ok {
			name = filepath.Join(s.cwd(), st.name)
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(st.text), 0o644)); err != nil {
			s.t.Fatalf("%s: %v", at, err)
		}
	case look:
		s.look(at, st)
	case commands:
		s.run(at, st)
	}
}

// answer returns the next line that the shell writes to file descriptor 3. It returns "" if the shell has
// exited.
func (s *shell) answer(at string) string {
	s.t.Helper()
	type answered struct {
		line string
		err  error
	}
	c := make(chan answered, 1)
	go func() {
		line, err := s.status.ReadString('\n')
		c <- answered{line, err}
	}()
	select {
	case a := <-c:
		if a.err != nil {
			return ""
		}
		return strings.TrimSpace(a.line)
	case <-time.After(patience):
		s.t.Fatalf("%s: the block takes longer than %v", at, patience)
	}
	return ""
}

func (s *shell) cwd() string {
	s.send("pwd >&3\n")
	return s.answer("pwd")
}

func (s *shell) run(at string, st step) {
	s.t.Helper()
	s.blocks++
	out := filepath.Join(s.home, fmt.Sprintf(".out%d", s.blocks))
	text := st.text
	if s.port != "" {
		text = strings.ReplaceAll(text, "7411", s.port)
	}
	if err := exec.CommandContext(s.t.Context(), "bash", "-n", "-c", text).Run(); err != nil {
		s.t.Fatalf("%s: bash cannot parse the block: %v", at, err)
	}
	switch {
	case st.background:
		s.send(fmt.Sprintf("set -m; {\n%s} >%s 2>&1 </dev/null 3>&- &\nset +m; echo $! >&3\n", text, out))
		group, err := strconv.Atoi(s.answer(at))
		if err != nil {
			s.t.Fatalf("%s: the block did not start: %v", at, err)
		}
		s.jobs = append(s.jobs, group)
	case st.exit != 0:
		s.send(fmt.Sprintf("set +e; {\n%s} >%s 2>&1 </dev/null\necho $? >&3; set -e\n", text, out))
	default:
		s.send(fmt.Sprintf("{\n%s} >%s 2>&1 </dev/null\necho 0 >&3\n", text, out))
	}
	if st.background {
		s.wait(at, st, out)
		return
	}
	code := s.answer(at)
	got := s.printed(out)
	if code != strconv.Itoa(st.exit) {
		s.t.Fatalf("%s: the block exits with %q, want %d:\n%s", at, code, st.exit, strings.Join(got, "\n"))
	}
	if st.want != nil && !matches(st.want, got) {
		s.t.Fatalf("%s: the block printed\n%s\n\nbut the page shows\n%s", at, strings.Join(got, "\n"), strings.Join(st.want, "\n"))
	}
}

// wait waits until a background block has printed the output that the page shows.
func (s *shell) wait(at string, st step, out string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for !matches(st.want, s.printed(out)) {
		if ctx.Err() != nil || syscall.Kill(-s.jobs[len(s.jobs)-1], 0) != nil {
			s.t.Fatalf("%s: the block printed\n%s\n\nbut the page shows\n%s", at, strings.Join(s.printed(out), "\n"), strings.Join(st.want, "\n"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

var serving = regexp.MustCompile(`(?m)^serving \d+ agents? at http://127\.0\.0\.1:(\d+)$`)

var signIn = regexp.MustCompile(`http://127\.0\.0\.1:\d+/login\?ticket=\S+`)

// printed returns the lines that a block printed. It replaces the port and the home directory with the
// values that pages show.
func (s *shell) printed(out string) []string {
	b, err := os.ReadFile(out)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	if links := signIn.FindAllString(string(b), -1); links != nil {
		if last := links[len(links)-1]; last != s.link {
			s.link, s.browser = last, nil
		}
	}
	text := string(b)
	if found := serving.FindStringSubmatch(text); found != nil {
		s.port = found[1]
	}
	if s.port != "" {
		text = strings.ReplaceAll(text, ":"+s.port, ":7411")
	}
	text = strings.ReplaceAll(text, s.home, "/home/you")
	text = strings.TrimRight(text, "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// homeLink matches the console's home link, which contains the session's address.
var homeLink = regexp.MustCompile(`<a class="mark" href="([^"]+)"`)

var hidden = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`)

// look opens a page of the console with the last printed link. If the step has fields, look fills in the
// form on the page.
func (s *shell) look(at string, st step) {
	s.t.Helper()
	if s.browser == nil {
		jar, err := cookiejar.New(nil)
		if err != nil {
			s.t.Fatal(err)
		}
		s.browser = &http.Client{Jar: jar, Timeout: patience}
		u, err := url.Parse(s.link)
		if err != nil || s.link == "" {
			s.t.Fatalf("%s: no command printed a link to the console", at)
		}
		body := s.post(at, s.base()+"/login", url.Values{"ticket": {u.Query().Get("ticket")}})
		found := homeLink.FindStringSubmatch(body)
		if !strings.Contains(body, "Sign out") || found == nil {
			s.t.Fatalf("%s: the link does not sign in:\n%s", at, body)
		}
		s.pages = s.base() + strings.TrimSuffix(found[1], "/")
	}
	body := s.fetch(at, s.pages+st.name)
	if len(st.fields) > 0 {
		form := url.Values{}
		_, rest, _ := strings.Cut(body, `class="try"`)
		rest, _, _ = strings.Cut(rest, "</form>")
		for _, h := range hidden.FindAllStringSubmatch(rest, -1) {
			form.Set(h[1], html.UnescapeString(h[2]))
		}
		for _, f := range st.fields {
			name, value, _ := strings.Cut(f, "=")
			form.Set("arg."+name, strings.Trim(value, `"`))
		}
		agent, _, _ := strings.Cut(st.name, "/tools/")
		body = s.post(at, s.pages+agent+"/call", form)
	}
	if text := html.UnescapeString(body); !strings.Contains(text, st.text) {
		s.t.Fatalf("%s: the console's %s does not show %q:\n%s", at, st.name, st.text, text)
	}
}

func (s *shell) base() string { return "http://127.0.0.1:" + s.port }

func (s *shell) fetch(at, address string) string {
	s.t.Helper()
	r, err := s.browser.Get(address)
	return s.body(at, r, err)
}

func (s *shell) post(at, address string, form url.Values) string {
	s.t.Helper()
	r, err := s.browser.PostForm(address, form)
	return s.body(at, r, err)
}

func (s *shell) body(at string, r *http.Response, err error) string {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%s: %v", at, err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s %v: %s", at, r.Status, err, b)
	}
	return string(b)
}
