package browser

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/ambit-run/ambit/internal/exec/signin"
	"github.com/ambit-run/ambit/internal/serve/console"
)

// TestSignInPages looks at the pages outside the sessions: before and after a sign-in, and when it fails.
func TestSignInPages(t *testing.T) {
	there := startNotes(t, true)
	there.from = startProvider(t, "better.mjs", there.address)
	t.Setenv("AMBIT_DEV", "1")
	d := start(t, map[string]string{"agents/notes.json": notesManifest(there.address)})
	key, err := d.command("key", "new", "--agents", "notes").Output()
	if err != nil {
		t.Fatal(err)
	}
	b := d.browse(t)
	b.expected = "Failed to load resource" // an icon that does not exist, and the refusals below
	enter := func(key string) {
		b.do(chromedp.Navigate(d.url+signin.PagePath+"?agent=notes&server=there"), chromedp.WaitVisible(chromedp.CSS("#key")),
			chromedp.SendKeys(chromedp.CSS("#key"), key), chromedp.Click(chromedp.CSS("button.primary")))
	}
	b.do(chromedp.Navigate(d.url + signin.PagePath + "?agent=notes&server=there"))
	b.text("h1", "Sign in to there")
	b.look("key")
	enter("ambit_wrong")
	b.text(".bad", "key")
	b.look("key-refused")
	enter(strings.TrimSpace(string(key)))
	b.do(chromedp.WaitVisible(chromedp.CSS("#continue")), chromedp.Click(chromedp.CSS("#continue")))
	there.from.agree(b, console.AnswerPath)
	b.text("h1", "Signed in")
	b.look("served")
	enter(strings.TrimSpace(string(key)))
	b.do(chromedp.WaitVisible(chromedp.CSS("#continue")), chromedp.Navigate(d.url+console.AnswerPath+"?code=c&state=s"))
	b.text(".bad", "The sign-in failed")
	b.look("sign-in-failed")

	// The script of the console submits the form on two pages at once. Without the script, a person presses the button.
	must(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `HTMLFormElement.prototype.requestSubmit = () => {}`,
	})
	b.do(chromedp.Navigate(d.link))
	b.text("button", "Sign in")
	b.look("login-link")
	b.do(chromedp.Click(chromedp.CSS("button.primary")))
	b.text("h1", "Agents")
	b.home = strings.TrimSuffix(ask[string](b, `location.pathname`), "/")
	b.open("/agents/notes")
	b.do(chromedp.Click(chromedp.CSS(`form[action$="/connect"] button`)), chromedp.WaitVisible(chromedp.CSS("#continue")))
	b.do(chromedp.Navigate(d.url + console.AnswerPath + "?code=c&state=s"))
	b.text("button", "Continue")
	b.look("answer")
	b.do(chromedp.Click(chromedp.CSS("button.primary")))
	b.text("h1", "The sign-in failed")
	b.look("connect-failed")
}

// looks contains the names of the looks at the pages of each template.
var looks = map[string][]string{
	"activity": {"activity"}, "agent": {"agent", "watch", "needs", "rejected"}, "agents": {"agents"}, "answer": {"answer"},
	"approvals": {"approvals", "approvals-none", "approved"}, "connect": {"connect"}, "error": {"error", "connect-failed"},
	"journal": {"journal", "journal-none"}, "login": {"login", "login-link", "sign-in-failed"}, "policy": {"policy"},
	"queue": {"queue"}, "record": {"record"}, "served": {"served"}, "serverlogin": {"key", "key-refused"}, "tool": {"tool"},
}

// TestEveryPageIsLookedAt checks that axe and the other checks of look see every page of the console. A handler shows its
// page with one of the templates.
func TestEveryPageIsLookedAt(t *testing.T) {
	pages := filepath.Join("..", "..", "serve", "console", "pages", "*.html")
	templates, err := filepath.Glob(pages)
	if err != nil || len(templates) == 0 {
		t.Fatal(templates, err)
	}
	sources, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var taken []string
	for _, file := range sources {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\.look\("([^"]+)"\)`).FindAllStringSubmatch(string(text), -1) {
			taken = append(taken, m[1])
		}
	}
	for _, file := range templates {
		name := strings.TrimSuffix(filepath.Base(file), ".html")
		if name != "layout" && len(looks[name]) == 0 {
			t.Errorf("no test looks at a page of %s", file)
		}
		for _, look := range looks[name] {
			if !slices.Contains(taken, look) {
				t.Errorf("no test has the look %s of %s", look, file)
			}
		}
	}
}
