// Package browser tests the console with a real daemon and a real Chromium. It writes screenshots to bin/screenshots.
package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/ambit-run/ambit/internal/cli"
	"github.com/ambit-run/ambit/internal/test/output"
)

// envAmbit makes this program run as ambit.
const envAmbit = "AMBIT_TEST_BE_AMBIT"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "xdg-open" {
		os.Exit(passPage(os.Args[1:]))
	}
	if os.Getenv(envAmbit) != "" {
		os.Exit(cli.Main())
	}
	os.Exit(m.Run())
}

// daemon is a running "ambit serve" process with an example agent and an invalid manifest. The service of the example
// agent runs in the test.
type daemon struct {
	t       *testing.T
	env     []string
	dir     string
	link    string
	url     string
	printed *output.Buffer
}

// agentPath returns the path of the example's manifest.
func (d *daemon) agentPath() string {
	return filepath.Join(d.dir, "agents", "report", "findagent.json")
}

// start starts a daemon. The parameter contains the texts of additional files, by path.
func start(t *testing.T, files map[string]string) *daemon {
	t.Helper()
	service := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"visits": 4711, "note": "<b>not markup</b>"}`))
	}))
	t.Cleanup(service.Close)
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	example, err := os.ReadFile(filepath.Join("..", "..", "..", "agents", "examples", "mcp-tool", "findagent.json"))
	if err != nil {
		t.Fatal(err)
	}
	write("agents/report/findagent.json", example)
	researcher, err := os.ReadFile(filepath.Join("..", "..", "..", "agents", "examples", "gpars-researcher.json"))
	if err != nil {
		t.Fatal(err)
	}
	write("agents/researcher.json", researcher)
	write("agents/loose.json", []byte(`{"schema_version": 1, "agent": "matrix://agent/loose", "allowed_side_effects": ["read", "shell"], "servers": [
  {"alias": "away", "transport": "http", "endpoint": "https://127.0.0.1:1/mcp", "version": "1.0.0", "tools": [{"name": "run", "side_effect_class": "shell"}]}]}`))
	write("agents/wrong.json", []byte("{\n  \"schema_version\": 1,\n  \"agent\": \"matrix://agent/wrong\",\n  \"allowed_side_effects\": [\"reed\"],\n  \"servers\": []\n}\n"))
	for name, text := range files {
		write(name, []byte(text))
	}
	ca := write("ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: service.Certificate().Raw}))
	d := &daemon{t: t, dir: dir, printed: &output.Buffer{}, env: append(os.Environ(), envAmbit+"=1", "AMBIT_HOME="+filepath.Join(dir, "home"),
		"AMBIT_DEV_CA="+ca, "AMBIT_DEV_RESOLVE=api.example.com:443="+service.Listener.Addr().String())}
	cmd := d.command("serve", "--json", "--listen", "127.0.0.1:0", "--agents", filepath.Join(dir, "agents"))
	cmd.Stderr = d.printed
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		timer := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		timer.Stop()
		if t.Failed() {
			t.Logf("the daemon printed: %s", d.printed.String())
		}
	})
	var ready struct{ URL, Console string }
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &ready) != nil || ready.Console == "" {
		t.Fatalf("the daemon printed %q, %v: %s", line, err, d.printed.String())
	}
	d.link, d.url = ready.Console, ready.URL
	return d
}

func (d *daemon) command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = d.env
	return cmd
}

// browser is a window of Chromium.
type browser struct {
	t   *testing.T
	ctx context.Context
	d   *daemon
	// home is the prefix of the session's addresses.
	home string

	mu       sync.Mutex
	problems []string
	expected string // problems that contain this text are ignored
}

func (d *daemon) browse(t *testing.T) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("chromium is not installed: run scripts/setup")
		}
		t.Skip("chromium is not installed")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WindowSize(1200, 900))
	alloc, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(cancel)
	ctx, expire := context.WithTimeout(ctx, 10*time.Minute)
	t.Cleanup(expire)
	b := &browser{t: t, ctx: ctx, d: d}
	// The first step starts the browser, which lives as long as its context.
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, log.Enable, cdp.Empty{}); err != nil {
		t.Fatal(err)
	}
	go func() {
		for e, err := range chromedp.Events(ctx, log.EntryAdded) {
			if err != nil {
				return
			}
			if e.Entry.Level == log.EntryLevelError {
				b.wrong(e.Entry.Text + " " + e.Entry.URL)
			}
		}
	}()
	go func() {
		for e, err := range chromedp.Events(ctx, runtime.ExceptionThrown) {
			if err != nil {
				return
			}
			b.wrong(e.ExceptionDetails.Text)
		}
	}()
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, p := range b.problems {
			t.Errorf("the browser's console: %s", p)
		}
	})
	return b
}

func (b *browser) wrong(problem string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.expected == "" || !strings.Contains(problem, b.expected) {
		b.problems = append(b.problems, problem)
	}
}

const patience = 30 * time.Second

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.fatal(err)
	}
}

func (b *browser) fatal(err error) {
	b.t.Helper()
	url, _ := chromedp.Run(b.ctx, chromedp.Location())
	body, _ := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS("body")))
	b.t.Fatalf("%v; %s shows:\n%s", err, url, body)
}

// ask evaluates a script.
func ask[T any](b *browser, script string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](script))
	if err != nil {
		b.fatal(err)
	}
	return v
}

// open opens a page of the console.
func (b *browser) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.d.url+b.home+path), chromedp.WaitReady(chromedp.CSS("#main")))
}

// text waits until an element contains a text.
func (b *browser) text(selector, want string) {
	b.t.Helper()
	quoted, err := json.Marshal([]string{selector, want})
	if err != nil {
		b.t.Fatal(err)
	}
	b.until(`(([s, w]) => [...document.querySelectorAll(s)].some((e) => e.textContent.includes(w)))(` + string(quoted) + `)`)
}

// until waits until a script returns true.
func (b *browser) until(script string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	for {
		// Scripts fail while a page is being replaced.
		if yes, err := chromedp.Run(ctx, chromedp.Evaluate[bool](script)); err == nil && yes {
			return
		}
		if ctx.Err() != nil {
			b.fatal(fmt.Errorf("timed out waiting for %s", script))
		}
	}
}

func (b *browser) signIn() {
	b.t.Helper()
	b.do(chromedp.Navigate(b.d.link))
	b.text("h1", "Agents")
	b.home = strings.TrimSuffix(ask[string](b, `location.pathname`), "/")
}

// look saves screenshots of the page in light and dark mode, on a desktop and on a phone, and checks each of the four.
func (b *browser) look(name string) {
	b.t.Helper()
	dir := filepath.Join("..", "..", "..", "bin", "screenshots")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	for _, way := range []struct {
		name, scheme string
		width        int64
	}{
		{"light", "light", 1200}, {"dark", "dark", 1200}, {"phone", "light", 390}, {"phone-dark", "dark", 390},
	} {
		must(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: way.scheme}}})
		must(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: way.width, Height: 900, DeviceScaleFactor: 1})
		b.until(fmt.Sprintf(`document.readyState === 'complete' && innerWidth === %d && document.documentElement.scrollHeight > 0`, way.width))
		shot := b.shot()
		if err := os.WriteFile(filepath.Join(dir, name+"-"+way.name+".png"), shot, 0o644); err != nil {
			b.t.Fatal(err)
		}
		b.fits(name, way.name, way.width)
		b.axe(name + " " + way.name)
	}
	must(b, emulation.ClearDeviceMetricsOverride, cdp.Empty{})
	must(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{})
}

// phone runs a function in a window that is as narrow as a phone.
func (b *browser) phone(do func()) {
	b.t.Helper()
	must(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 390, Height: 900, DeviceScaleFactor: 1})
	b.until(`innerWidth === 390`)
	do()
	must(b, emulation.ClearDeviceMetricsOverride, cdp.Empty{})
	b.until(`innerWidth > 390`)
}

// shot returns a screenshot. A browser under load may never draw the frame that the screenshot waits
// for. Therefore shot retries.
func (b *browser) shot() []byte {
	b.t.Helper()
	beyond := true
	for try := 1; ; try++ {
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		r, err := chromedp.Call(ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: &beyond})
		cancel()
		if err == nil {
			return r.Data
		}
		if try == 3 {
			b.fatal(err)
		}
	}
}

// must sends a command of the DevTools protocol.
func must[P, R any](b *browser, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	r, err := chromedp.Call(b.ctx, command, params)
	if err != nil {
		b.fatal(err)
	}
	return r
}

// fits checks that the page needs no horizontal scrolling.
func (b *browser) fits(name, way string, width int64) {
	b.t.Helper()
	if wide := ask[int64](b, `document.documentElement.scrollWidth`); wide > width {
		b.t.Errorf("%s is %d pixels wide, but the window (%s) has only %d", name, wide, way, width)
	}
}

// modules returns the folder of the npm packages, which are installed once for each version of the lock file.
var modules = sync.OnceValues(func() (string, error) {
	lock, err := os.ReadFile("package-lock.json")
	if err != nil {
		return "", err
	}
	stamp := filepath.Join("node_modules", ".stamp")
	if got, err := os.ReadFile(stamp); err != nil || !bytes.Equal(got, lock) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		install := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
		if out, err := install.CombinedOutput(); err != nil {
			return "", fmt.Errorf("npm ci: %w\n%s", err, out)
		}
		if err := os.WriteFile(stamp, lock, 0o644); err != nil {
			return "", err
		}
	}
	return filepath.Abs("node_modules")
})

func axeSource() (string, error) {
	dir, err := modules()
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(filepath.Join(dir, "axe-core", "axe.min.js"))
	return string(source), err
}

// axe reports every violation of an accessibility rule that axe-core finds: contrast, names, roles, landmarks, headings
// and best practices.
func (b *browser) axe(name string) {
	b.t.Helper()
	if !ask[bool](b, `'axe' in self`) {
		source, err := axeSource()
		if err != nil {
			b.t.Fatal(err)
		}
		ask[bool](b, source+"\n;true")
	}
	const run = `axe.run(document, { resultTypes: ['violations'] }).then(({ violations, passes }) => violations.length ?
  violations.flatMap((v) => v.nodes.map((n) => v.id + ': ' + v.help + ': ' + n.html.slice(0, 200) + ' ' + n.failureSummary)) :
  passes.length > 10 ? [] : ['axe checked only ' + passes.length + ' rules'])`
	found, err := chromedp.Run(b.ctx, chromedp.Evaluate[[]string](run, chromedp.EvalAwaitPromise))
	if err != nil {
		b.fatal(err)
	}
	for _, v := range found {
		b.t.Errorf("%s: %s", name, v)
	}
}
