package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
)

var (
	// ErrNotFound means that the registry knows no such server.
	ErrNotFound = errors.New("the registry has no such server")
	// ErrUnsatisfied means that no version satisfies the constraint.
	ErrUnsatisfied = errors.New("no version satisfies the constraint")
	// ErrUnreachable means that the registry gave no valid answer.
	ErrUnreachable = errors.New("the registry is unreachable")
	// errContainer means that a server is a container image, which ambit can neither
	// verify nor sandbox.
	errContainer = errors.New("it is a container image, which ambit does not run: use another package of the server, or create a manifest for your container runtime from its server.json with ambit import")
)

// Limits on a registry's answers.
const (
	maxBody    = 8 << 20 // of one page
	maxBytes   = 2 * maxBody
	maxPages   = 100
	maxEntries = 10_000
	maxTokens  = 250_000 // of JSON: three bytes of text can take hundreds of bytes of memory
	pageSize   = 100
	askTimeout = 10 * time.Second
)

// Client queries registries. It caches answers in the home.
type Client struct {
	config Config
	cache  cache
	// send sends one request to a host.
	send func(Host, *http.Request) (*http.Response, error)
}

// NewClient makes a client.
func NewClient(h home.Home, config Config) *Client {
	return &Client{config: config, cache: cache{dir: cacheDir(h), now: time.Now}, send: send}
}

// public and local send to public addresses and to this machine.
var (
	public = egress.New(egress.Switches{})
	local  = egress.New(egress.Switches{LoopbackHTTP: true})
)

// private sends to the user's own network, which the egress client refuses.
var private = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Transport:     &http.Transport{Proxy: nil, TLSHandshakeTimeout: askTimeout, MaxResponseHeaderBytes: 64 << 10},
}

func send(h Host, req *http.Request) (*http.Response, error) {
	switch {
	case h.configured && egress.IsLoopback(req.URL.Hostname()):
		return local.Do(req)
	case h.configured && h.Private:
		return private.Do(req)
	}
	return public.Do(req)
}

// page is one page of the registry's answer.
type page struct {
	Servers []struct {
		Server Listing `json:"server"`
		Meta   struct {
			Official struct {
				Status string `json:"status"`
			} `json:"io.modelcontextprotocol.registry/official"`
		} `json:"_meta"`
	} `json:"servers"`
	Metadata struct {
		NextCursor string `json:"nextCursor"`
	} `json:"metadata"`
}

// Name is a server's name in the host's registry: the rest of the id, prefixed by the
// host's namespace if it has none.
func (h Host) Name(id string) (string, error) {
	_, rest, _ := strings.Cut(id, "/")
	switch {
	case rest == "":
		return "", fmt.Errorf("%s does not name a server", diag.Quote(id))
	case strings.Contains(rest, "/"):
		return rest, nil
	case h.Namespace == "":
		return "", fmt.Errorf("the servers of this registry have names of two parts, such as %s", "io.github.example/"+rest)
	}
	return h.Namespace + "/" + rest, nil
}

// Versions returns all versions of a server, unordered.
func (c *Client) Versions(ctx context.Context, host, id string) (list []Listing, warning string, err error) {
	h, ok := c.config.Hosts[host]
	if !ok {
		return nil, "", fmt.Errorf("the registry %s is not known: name its url in config.toml, under [registry.%q]", diag.Quote(host), host)
	}
	name, err := h.Name(id)
	if err != nil {
		return nil, "", err
	}
	return c.cache.through(h.URL+" "+name, func() ([]Listing, error) {
		return c.pages(ctx, h, "/v0.1/servers/"+url.PathEscape(name)+"/versions", url.Values{}, 0)
	})
}

// Search returns the newest versions of servers whose names contain a text, at most
// limit.
func (c *Client) Search(ctx context.Context, host, text string, limit int) ([]Listing, error) {
	h, ok := c.config.Hosts[host]
	if !ok {
		return nil, fmt.Errorf("the registry %s is not known", diag.Quote(host))
	}
	query := url.Values{"version": {"latest"}}
	if text != "" {
		query.Set("search", text)
	}
	return c.pages(ctx, h, "/v0.1/servers", query, limit)
}

// pages reads all pages of an answer.
func (c *Client) pages(ctx context.Context, h Host, path string, query url.Values, limit int) ([]Listing, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	query.Set("limit", strconv.Itoa(pageSize))
	var list []Listing
	seen := map[string]bool{}
	left := budget{bytes: maxBytes, tokens: maxTokens}
	for range maxPages {
		p, err := c.get(ctx, h, path+"?"+query.Encode(), &left)
		if err != nil {
			return nil, err
		}
		if len(list)+len(p.Servers) > maxEntries {
			return nil, fmt.Errorf("%w: its answer has more than %d entries", ErrUnreachable, maxEntries)
		}
		for _, s := range p.Servers {
			s.Server.Status = s.Meta.Official.Status
			list = append(list, s.Server)
		}
		next := p.Metadata.NextCursor
		if next == "" || limit > 0 && len(list) >= limit {
			return list, nil
		}
		if seen[next] {
			return nil, fmt.Errorf("%w: its pages form a loop", ErrUnreachable)
		}
		seen[next] = true
		query.Set("cursor", next)
	}
	return nil, fmt.Errorf("%w: its answer has more than %d pages", ErrUnreachable, maxPages)
}

// budget is what the remaining pages of one answer may use.
type budget struct{ bytes, tokens int }

// take counts a page before it is decoded.
func (b *budget) take(body []byte) error {
	if b.bytes -= len(body); b.bytes < 0 {
		return fmt.Errorf("%w: its answer has more than %d bytes on all its pages", ErrUnreachable, maxBytes)
	}
	for d := json.NewDecoder(bytes.NewReader(body)); ; b.tokens-- {
		if _, err := d.Token(); err != nil {
			return nil // the end, or invalid JSON, which decoding reports
		}
		if b.tokens == 0 {
			return fmt.Errorf("%w: its answer has more than %d parts", ErrUnreachable, maxTokens)
		}
	}
}

func (c *Client) get(ctx context.Context, h Host, path string, left *budget) (*page, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+path, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: its address is not a URL", ErrUnreachable)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "ambit")
	resp, err := c.send(h, req)
	if err != nil {
		if r, ok := errors.AsType[*call.Refusal](err); ok {
			return nil, fmt.Errorf("%w: %s", ErrUnreachable, r.Message)
		}
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return nil, ErrNotFound
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%w: it returned status %d", ErrUnreachable, resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: its answer was cut off", ErrUnreachable)
	case len(body) > maxBody:
		return nil, fmt.Errorf("%w: its answer is larger than %d bytes", ErrUnreachable, maxBody)
	}
	if err := left.take(body); err != nil {
		return nil, err
	}
	var p page
	if err := json.Unmarshal(body, &p); err != nil {
		return nil, fmt.Errorf("%w: its answer is not that of a registry", ErrUnreachable)
	}
	return &p, nil
}
