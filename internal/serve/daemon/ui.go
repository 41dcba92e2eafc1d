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
	"strconv"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/store/identity"
)

// A bundle can contain web pages. The pages are untrusted, so the daemon isolates them from itself:
//
//   - The daemon sends every page with the sandbox directive of Content-Security-Policy.
//     The directive also applies to a page that is opened outside a frame. A sandboxed
//     page has an opaque origin. The shield therefore refuses its requests to the API and
//     the console, as it refuses requests from other sites.
//   - A page can load only files under its own address. It cannot open connections or
//     submit forms, and other sites cannot frame it.
//   - A browser frame cannot send an API key. Instead, a caller with a key requests a
//     ticket, which is part of the frame's address. A ticket is for one agent. It
//     expires after an hour, or earlier if the caller's key or token becomes invalid. A
//     ticket of the console also ends with the console session.
//   - A page calls its agent's tools with a message to the frame around it (JSON-RPC, as
//     in MCP). The script of the frame passes the call to the daemon, and the gateway
//     decides. The ticket in the frame's address allows calls. The pages get another
//     ticket, which opens only files, because a page knows its own address and could
//     publish the ticket in it.

// uiTime is the lifetime of a ticket. A ticket never outlives the token or console session that requested it.
const uiTime = time.Hour

// A ticket for the frame also allows calls of the agent's tools. A ticket for pages opens only files.
const (
	forFrame = "ui frame"
	forPages = "ui ticket"
)

// maxPage is the maximum number of bytes that are served from one file.
const maxPage = 32 << 20

// ticket is the content of a page ticket. The address of a page contains the ticket in sealed form.
type ticket struct {
	Agent string `json:"agent"`
	Until int64  `json:"until"`
	// Who contains the principal that requested the ticket, without rights.
	Who identity.Principal `json:"who"`
	// Session is the id of the console session that requested the ticket. It is "" if a key or token requested the ticket.
	Session string `json:"session,omitempty"`
}

// uiTicket issues a ticket for an agent's pages. The answer contains the address of the frame that shows them.
func (d *Daemon) uiTicket(r *http.Request) (any, *problem) {
	v, trouble := d.enter(r, r.PathValue("name"))
	if trouble != nil {
		return nil, trouble
	}
	defer v.leave()
	if pages, _ := uiOf(r.Context(), v.running); pages == nil || d.options.Tickets == nil {
		return nil, noPages()
	}
	p := principalOf(r)
	at, until := d.frameAddress(v.Name, p, "", p.Until)
	return map[string]any{"url": at, "expires_at": until.UTC().Format(time.RFC3339)}, nil
}

// frameAddress returns the path of a new frame around an agent's pages, and the time when its ticket expires. If end is
// not zero, the ticket expires at that time or earlier.
func (d *Daemon) frameAddress(name string, p *identity.Principal, session string, end time.Time) (string, time.Time) {
	until := time.Now().Add(uiTime)
	if !end.IsZero() && end.Before(until) {
		until = end
	}
	who := p.WithoutRights()
	if p.Kind == identity.Local { // the daemon's temporary key is not in the store, and is valid only until the daemon exits
		who.KeyID = d.run
	}
	return "/ui/" + d.sealTicket(forFrame, ticket{name, until.Unix(), who, session}), until
}

func (d *Daemon) sealTicket(purpose string, t ticket) string {
	sealed, err := d.options.Tickets.SealText(purpose, t)
	if err != nil {
		panic(err) // strings, numbers and times can always be encoded
	}
	return sealed
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
func uiOf(ctx context.Context, running Running) (fs.FS, string) {
	if running.Ready(ctx) != nil {
		return nil, ""
	}
	return running.UI()
}

// openTicket returns the content of a ticket, or nil if the ticket is invalid or expired. A ticket becomes invalid when
// its key is revoked or cannot be checked, and when the person signs out of the console session that requested it. A
// ticket for the temporary key of an earlier daemon is invalid too.
func (d *Daemon) openTicket(ctx context.Context, purpose, text string) *ticket {
	var t ticket
	if d.options.Tickets == nil || d.options.Tickets.OpenText(purpose, text, &t) != nil || time.Now().Unix() >= t.Until ||
		d.standing(ctx, &t.Who) != nil || t.Who.Kind == identity.Local && t.Who.KeyID != d.run ||
		t.Session != "" && d.signedOut(ctx, t.Session) {
		return nil
	}
	return &t
}

// signedOut reports whether a console session has ended or cannot be checked.
func (d *Daemon) signedOut(ctx context.Context, session string) bool {
	c := d.console.Load()
	if c == nil {
		return true
	}
	out, err := c.SignedOut(ctx, session)
	return err != nil || out
}

// uiFrame answers with HTML that shows the agent's first page in a sandboxed frame. A script outside the frame passes
// the frame's calls to uiCall.
func (d *Daemon) uiFrame(w http.ResponseWriter, r *http.Request) {
	d.withPages(w, r, forFrame, func(t *ticket, _ fs.FS, first string) {
		at := d.base(r) + "/ui/" + d.sealTicket(forPages, *t) + "/"
		h := w.Header()
		h.Del("X-Frame-Options")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src '"+hashSource(frameStyle)+"'; script-src '"+
			hashSource(frameScript)+"'; connect-src 'self'; frame-src "+at+
			"; frame-ancestors 'self'; base-uri 'none'; form-action 'none'")
		h.Set("Content-Type", "text/html; charset=utf-8")
		source := at + (&url.URL{Path: first}).EscapedPath()
		// the client may be gone
		_ = framePage.Execute(w, map[string]any{
			"Name": t.Agent, "Source": source, "Style": template.CSS(frameStyle), "Script": template.JS(frameScript),
		})
	})
}

// uiCall makes a call that one of the agent's pages requested, on behalf of the principal that requested the ticket.
func (d *Daemon) uiCall(r *http.Request) (any, *problem) {
	t := d.openTicket(r.Context(), forFrame, r.PathValue("ticket"))
	if t == nil {
		return nil, noPages()
	}
	who := t.Who
	who.Agents = []string{t.Agent}
	body := d.requestBytes.Body(who.Name, r.Body)
	defer body.Release()
	r.Body = body
	return d.callAs(d.withPrincipal(r, &who), t.Agent)
}

const frameStyle = `html,body,iframe{margin:0;border:0;width:100%;height:100%}`

// frameScript passes tools/call requests of the framed page to the daemon, and answers with the results. All other
// messages are ignored.
const frameScript = `addEventListener("message", async ({ source, data }) => {
	const page = document.querySelector("iframe").contentWindow;
	if (source !== page || data?.jsonrpc !== "2.0" || data.method !== "tools/call") return;
	const answer = (part) => page.postMessage({ jsonrpc: "2.0", id: data.id, ...part }, "*");
	try {
		const body = JSON.stringify({ tool: data.params.name, arguments: data.params.arguments ?? {} });
		const response = await fetch(location.pathname, { method: "POST", body });
		const { error, is_error: isError, ...result } = await response.json();
		answer(error ? { error: { code: -32000, message: error.message, data: error } } : { result: { ...result, isError } });
	} catch (problem) {
		answer({ error: { code: -32603, message: String(problem) } });
	}
});`

var framePage = template.Must(template.New("frame").Parse(`<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{{.Name}}</title><style>{{.Style}}</style><script>{{.Script}}</script></head>
<body><iframe title="{{.Name}}" sandbox="allow-scripts" referrerpolicy="no-referrer" src="{{.Source}}"></iframe></body>
</html>
`))

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
	d.withPages(w, r, forPages, func(_ *ticket, pages fs.FS, first string) {
		name := r.PathValue("path")
		if name == "" {
			name = first
		}
		ext := strings.ToLower(path.Ext(name))
		if openedAlone(r.Header.Get("Sec-Fetch-Dest"), ext) {
			failure("forbidden", "an agent's pages are shown only in their frame",
				"open the link that this request returns: GET /api/v1/agents/NAME/ui").write(w)
			return
		}
		f, size := openPage(pages, name)
		if f == nil {
			noPages().write(w)
			return
		}
		defer f.Close()
		at := d.base(r) + "/ui/" + r.PathValue("ticket") + "/"
		h := w.Header()
		h.Del("X-Frame-Options")
		// In a sandboxed page, 'self' matches nothing. The policy therefore contains the full address.
		h.Set("Content-Security-Policy", "sandbox allow-scripts; default-src 'none'; script-src "+at+"; style-src "+at+
			" 'unsafe-inline'; img-src "+at+" data:; font-src "+at+"; connect-src 'none'; frame-ancestors "+d.base(r)+
			"; base-uri 'none'; form-action 'none'")
		// Content-Security-Policy does not cover WebRTC. Browsers that do not know this header ignore it.
		h.Set("Connection-Allowlist", "(response-origin); webrtc=block")
		// A sandboxed page has an opaque origin. The value "same-origin" would therefore block the page's own files.
		h.Set("Cross-Origin-Resource-Policy", "cross-origin")
		h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), clipboard-read=(), "+
			"clipboard-write=(), payment=(), usb=()")
		kind, known := pageTypes[ext]
		if !known {
			kind = "application/octet-stream"
			h.Set("Content-Disposition", "attachment")
		}
		h.Set("Content-Type", kind)
		h.Set("Content-Length", strconv.FormatInt(size, 10))
		// Copy the file in pieces, because clients without a key can request it. The client may be gone.
		_, _ = io.Copy(w, io.LimitReader(f, size))
	})
}

// openedAlone reports whether a browser requests a file in order to show it outside the frame of uiFrame. Outside the
// frame, the frame's policy would not stop the page from navigating to other sites. openedAlone returns false for
// clients that do not send the header Sec-Fetch-Dest.
func openedAlone(dest, ext string) bool {
	return dest == "document" || ext == ".html" && dest != "" && dest != "iframe"
}

// openPage opens a file and returns the number of bytes to serve. It returns nil if there is no regular file with this
// name, or if the file is hidden.
func openPage(pages fs.FS, name string) (f fs.File, size int64) {
	if !fs.ValidPath(name) || strings.HasPrefix(name, ".") || strings.Contains(name, "/.") {
		return nil, 0
	}
	f, err := pages.Open(name)
	if err != nil {
		return nil, 0
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, 0
	}
	return f, min(info.Size(), maxPage)
}

// withPages finds the pages that the request's ticket opens. It calls the callback with the ticket, the pages, and the
// name of the first page. If the ticket opens no pages, withPages answers with the error not_found.
func (d *Daemon) withPages(
	w http.ResponseWriter, r *http.Request, purpose string, show func(t *ticket, pages fs.FS, first string),
) {
	t := d.openTicket(r.Context(), purpose, r.PathValue("ticket"))
	if t == nil {
		noPages().write(w)
		return
	}
	v, trouble := d.fleet.enter(t.Agent, consoleUser)
	if trouble != nil {
		noPages().write(w)
		return
	}
	defer v.leave()
	pages, first := uiOf(r.Context(), v.running)
	if pages == nil {
		noPages().write(w)
		return
	}
	show(t, pages, first)
}
