package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
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

// A bundle can contain web pages. The pages are untrusted, so the daemon isolates them from itself:
//
//   - The daemon sends every page with the sandbox directive of Content-Security-Policy.
//     The directive also applies to a page that is opened outside a frame. A sandboxed
//     page has an opaque origin. To the shield, its requests to the API and the console
//     come from another site, and are refused.
//   - A page can load only files under its own address. It cannot open connections or
//     submit forms, and other sites cannot frame it.
//   - A browser frame cannot send an API key. Instead, a caller with a key requests a
//     ticket, which is part of the page's address. A ticket opens the pages of one
//     agent. It expires after an hour, or earlier if the caller's key or token
//     becomes invalid.

// uiTime is the lifetime of a ticket. A ticket never outlives the token of the caller who requested it.
const uiTime = time.Hour

const uiPurpose = "ui ticket"

// maxPage is the maximum number of bytes that are served from one file.
const maxPage = 32 << 20

// ticket is the content of a page ticket. The address of a page contains the ticket in sealed form.
type ticket struct {
	Agent string `json:"agent"`
	Until int64  `json:"until"`
	// Key is the id of the API key that requested the ticket. It is empty if the caller used no API key.
	Key string `json:"key,omitempty"`
}

// uiTicket issues a ticket for an agent's pages and answers with the address of the pages.
func (d *Daemon) uiTicket(r *http.Request) (any, *problem) {
	p := principalOf(r)
	v, trouble := d.enter(r)
	if trouble != nil {
		return nil, trouble
	}
	defer v.leave()
	if pages, _ := uiOf(r, v.running); pages == nil || d.options.Tickets == nil {
		return nil, noPages()
	}
	until := time.Now().Add(uiTime)
	if !p.Until.IsZero() && p.Until.Before(until) {
		until = p.Until
	}
	t := ticket{Agent: v.Name, Until: until.Unix()}
	if p.Kind == identity.ByKey { // the daemon's temporary key is not in the store
		t.Key = p.KeyID
	}
	sealed, err := d.options.Tickets.SealText(uiPurpose, t)
	if err != nil {
		return nil, noPages()
	}
	return map[string]any{"url": "/ui/" + sealed, "expires_at": until.UTC().Format(time.RFC3339)}, nil
}

// fromPages reports whether a sandboxed page requests one of its own files. Browsers send the origin "null" for a
// sandboxed page. The page can display the response, but its scripts cannot read it.
func fromPages(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	return r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/ui/") && len(origins) == 1 && origins[0] == "null"
}

func noPages() *problem {
	return failure("not_found", "no pages are served at this address", "to get a link, send: GET /api/v1/agents/NAME/ui")
}

// uiOf returns the agent's pages and the name of the first page. The pages are nil if the agent is not ready or has
// no pages.
func uiOf(r *http.Request, running Running) (fs.FS, string) {
	if running.Ready(r.Context()) != nil {
		return nil, ""
	}
	return running.UI()
}

// ticketAgent returns the name of the agent whose pages the ticket opens. It returns an empty name if the ticket is
// invalid or expired, or if the ticket's key is revoked or cannot be checked.
func (d *Daemon) ticketAgent(ctx context.Context, text string) string {
	var t ticket
	if d.options.Tickets == nil || d.options.Tickets.OpenText(uiPurpose, text, &t) != nil || time.Now().Unix() >= t.Until {
		return ""
	}
	if t.Key != "" && d.options.APIKeys.Standing(ctx, t.Key) != nil {
		return ""
	}
	return t.Agent
}

// uiFrame answers with a page that shows the agent's first page in a sandboxed frame.
func (d *Daemon) uiFrame(w http.ResponseWriter, r *http.Request) {
	d.withPages(w, r, func(name string, _ fs.FS, first string) {
		at := d.base(r) + r.URL.EscapedPath() + "/"
		h := w.Header()
		h.Del("X-Frame-Options")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src '"+frameStyleHash+"'; frame-src "+at+
			"; frame-ancestors 'self'; base-uri 'none'; form-action 'none'")
		h.Set("Content-Type", "text/html; charset=utf-8")
		source := at + (&url.URL{Path: first}).EscapedPath()
		// the client may be gone
		_ = framePage.Execute(w, map[string]any{"Name": name, "Source": source, "Style": template.CSS(frameStyle)})
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

// hashSource returns the SHA-256 hash of text in the notation of Content-Security-Policy.
func hashSource(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// pageTypes maps file extensions to content types. Browsers display files with these extensions. All other files are
// sent as attachments, which browsers save.
var pageTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8",
	".json": "application/json", ".txt": "text/plain; charset=utf-8", ".svg": "image/svg+xml",
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg",
	".gif": "image/gif", ".webp": "image/webp", ".ico": "image/x-icon", ".woff": "font/woff", ".woff2": "font/woff2",
}

// uiPage answers with one file of an agent's pages.
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
		// In a sandboxed page, 'self' matches nothing. The policy therefore contains the full address.
		h.Set("Content-Security-Policy", "sandbox allow-scripts; default-src 'none'; script-src "+at+"; style-src "+at+
			" 'unsafe-inline'; img-src "+at+" data:; font-src "+at+"; connect-src 'none'; frame-ancestors "+d.base(r)+
			"; base-uri 'none'; form-action 'none'")
		// A sandboxed page has an opaque origin. The value "same-origin" would therefore block the page's own files.
		h.Set("Cross-Origin-Resource-Policy", "cross-origin")
		h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), clipboard-read=(), "+
			"clipboard-write=(), payment=(), usb=()")
		kind, known := pageTypes[strings.ToLower(path.Ext(name))]
		if !known {
			kind = "application/octet-stream"
			h.Set("Content-Disposition", "attachment")
		}
		h.Set("Content-Type", kind)
		_, _ = w.Write(text) // the client may be gone
	})
}

// readPage returns the content of a file. It returns nil if there is no regular file with this name, or if the file
// is hidden.
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
	text, err := io.ReadAll(io.LimitReader(f, maxPage)) // ReadAll returns a non-nil slice even for an empty file
	if err != nil {
		return nil
	}
	return text
}

// withPages finds the pages that the request's ticket opens. It calls the callback with the agent's name, the pages,
// and the name of the first page. If the ticket opens no pages, withPages answers with the error not_found.
func (d *Daemon) withPages(w http.ResponseWriter, r *http.Request, show func(name string, pages fs.FS, first string)) {
	v, trouble := d.fleet.enter(d.ticketAgent(r.Context(), r.PathValue("ticket")), consoleUser)
	if trouble != nil {
		noPages().write(w)
		return
	}
	defer v.leave()
	pages, first := uiOf(r, v.running)
	if pages == nil {
		noPages().write(w)
		return
	}
	show(v.Name, pages, first)
}
