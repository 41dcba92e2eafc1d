package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/store/identity"
)

// The pages of a bundle are untrusted. Browsers isolate them from the daemon:
//
//   - Every response demands a sandbox, also outside a frame. The page has an opaque
//     origin, so that the API and the console are other sites to it, and the shield
//     refuses its requests.
//   - A page loads files beside it and nothing else. It cannot connect, send forms,
//     or be framed by another site.
//   - A frame cannot send a key. A caller with a key requests a ticket, which is part
//     of the address, opens the pages of one agent only, and expires within an hour,
//     or with the key or token of the caller.

// uiTime is how long a ticket is valid.
const uiTime = time.Hour

const uiPurpose = "ui ticket"

// maxPage bounds one file.
const maxPage = 32 << 20

// Paged is a [Running] with pages.
type Paged interface {
	// UI returns the pages and the name of the first one; nil if there are none.
	UI() (pages fs.FS, first string)
}

// ticket opens the pages of one agent.
type ticket struct {
	Agent string `json:"agent"`
	Until int64  `json:"until"`
	// Key is the id of the API key that requested it; empty for other callers.
	Key string `json:"key,omitempty"`
}

// uiTicket answers with the address of an agent's pages.
func (d *Daemon) uiTicket(w http.ResponseWriter, r *http.Request) {
	p := principalOf(r)
	v, trouble := d.fleet.enter(r.PathValue("name"), p)
	if trouble != nil {
		trouble.write(w)
		return
	}
	defer v.leave()
	if pages, _ := uiOf(r, v.running); pages == nil || d.options.Tickets == nil {
		noPages().write(w)
		return
	}
	until := time.Now().Add(uiTime)
	if !p.Until.IsZero() && p.Until.Before(until) {
		until = p.Until
	}
	t := ticket{Agent: v.Name, Until: until.Unix()}
	if p.Kind == identity.ByKey { // the daemon's own key is in no store
		t.Key = p.KeyID
	}
	text, err := json.Marshal(t)
	if err != nil {
		noPages().write(w)
		return
	}
	sealed := base64.RawURLEncoding.EncodeToString(d.options.Tickets.Seal(uiPurpose, text))
	reply(w, http.StatusOK, map[string]any{"url": "/ui/" + sealed, "expires_at": until.UTC().Format(time.RFC3339)})
}

// fromPages reports whether a sandboxed page, whose origin is null, requests a file beside it. The
// page can show the response, but cannot read it.
func fromPages(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	return r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/ui/") && len(origins) == 1 && origins[0] == "null"
}

func noPages() *problem {
	return &problem{status: http.StatusNotFound, Code: "not_found", Message: "no pages are served at this address", Hint: "request their address: GET /api/v1/agents/NAME/ui"}
}

func uiOf(r *http.Request, running Running) (fs.FS, string) {
	paged, ok := running.(Paged)
	if !ok || running.Ready(r.Context()) != nil {
		return nil, ""
	}
	return paged.UI()
}

// admitted returns the agent of a ticket; empty if the ticket is invalid or expired, or its key is
// not known to be valid.
func (d *Daemon) admitted(ctx context.Context, text string) string {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || d.options.Tickets == nil {
		return ""
	}
	open, err := d.options.Tickets.Open(uiPurpose, sealed)
	var t ticket
	if err != nil || json.Unmarshal(open, &t) != nil || time.Now().Unix() >= t.Until {
		return ""
	}
	if t.Key != "" && d.options.APIKeys.Standing(ctx, t.Key) != nil {
		return ""
	}
	return t.Agent
}

// uiFrame is the page that shows the others in a frame.
func (d *Daemon) uiFrame(w http.ResponseWriter, r *http.Request) {
	d.withPages(w, r, func(name string, _ fs.FS, first string) {
		at := d.base(r) + r.URL.EscapedPath() + "/"
		h := w.Header()
		h.Del("X-Frame-Options")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src '"+frameStyleHash+"'; frame-src "+at+"; frame-ancestors 'self'; base-uri 'none'; form-action 'none'")
		h.Set("Content-Type", "text/html; charset=utf-8")
		// the client may be gone
		_ = framePage.Execute(w, map[string]any{"Name": name, "Source": at + (&url.URL{Path: first}).EscapedPath(), "Style": template.CSS(frameStyle)})
	})
}

const frameStyle = `html,body,iframe{margin:0;border:0;width:100%;height:100%}`

var (
	frameStyleHash = hashSource(frameStyle)
	framePage      = template.Must(template.New("frame").Parse(`<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{{.Name}}</title><style>{{.Style}}</style></head>
<body><iframe title="{{.Name}}" sandbox="allow-scripts" referrerpolicy="no-referrer" src="{{.Source}}"></iframe></body>
</html>
`))
)

// hashSource returns a text's hash in the form of a Content-Security-Policy.
func hashSource(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// pageTypes are the content types of pages. Browsers save files of other types.
var pageTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8",
	".json": "application/json", ".txt": "text/plain; charset=utf-8", ".svg": "image/svg+xml", ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg",
	".gif": "image/gif", ".webp": "image/webp", ".ico": "image/x-icon", ".woff": "font/woff", ".woff2": "font/woff2",
}

func (d *Daemon) uiPage(w http.ResponseWriter, r *http.Request) {
	d.withPages(w, r, func(_ string, pages fs.FS, first string) {
		name := r.PathValue("path")
		if name == "" {
			name = first
		}
		text := readPage(pages, name)
		if text == nil {
			noPages().write(w)
			return
		}
		at := d.base(r) + "/ui/" + r.PathValue("ticket") + "/"
		h := w.Header()
		h.Del("X-Frame-Options")
		// A sandboxed page has no 'self', so addresses are written in full.
		h.Set("Content-Security-Policy", "sandbox allow-scripts; default-src 'none'; script-src "+at+"; style-src "+at+" 'unsafe-inline'; img-src "+at+
			" data:; font-src "+at+"; connect-src 'none'; frame-ancestors "+d.base(r)+"; base-uri 'none'; form-action 'none'")
		// The opaque origin of a sandboxed page is not this site.
		h.Set("Cross-Origin-Resource-Policy", "cross-origin")
		h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), clipboard-read=(), clipboard-write=(), payment=(), usb=()")
		kind, known := pageTypes[strings.ToLower(path.Ext(name))]
		if !known {
			kind = "application/octet-stream"
			h.Set("Content-Disposition", "attachment")
		}
		h.Set("Content-Type", kind)
		_, _ = w.Write(text) // the client may be gone
	})
}

// readPage returns nil if there is no such file.
func readPage(pages fs.FS, name string) []byte {
	if !fs.ValidPath(name) || strings.HasPrefix(name, ".") || strings.Contains(name, "/.") {
		return nil
	}
	f, err := pages.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(f, maxPage))
	if err != nil {
		return nil
	}
	if text == nil {
		text = []byte{}
	}
	return text
}

// withPages finds the pages that a ticket opens.
func (d *Daemon) withPages(w http.ResponseWriter, r *http.Request, show func(name string, pages fs.FS, first string)) {
	name := d.admitted(r.Context(), r.PathValue("ticket"))
	e := d.fleet.current.Load().byName[name]
	if name == "" || e == nil {
		noPages().write(w)
		return
	}
	running, leave, ok := e.enter()
	if !ok {
		noPages().write(w)
		return
	}
	defer leave()
	pages, first := uiOf(r, running)
	if pages == nil {
		noPages().write(w)
		return
	}
	show(name, pages, first)
}
