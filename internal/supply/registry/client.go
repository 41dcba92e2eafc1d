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
	// ErrNotFound means that the registry does not know the server.
	ErrNotFound = errors.New("the registry does not have this server")
	// ErrUnsatisfied means that no version satisfies the constraint.
	ErrUnsatisfied = errors.New("no version satisfies the constraint")
	// ErrUnreachable means that the registry did not answer, or that its answer is not valid.
	ErrUnreachable = errors.New("the registry is unreachable")
)

// Limits for the answers of a registry.
const (
	maxBody    = 8 << 20     // the maximum size of a page in bytes
	maxBytes   = 2 * maxBody // the maximum size of all pages in bytes
	maxPages   = 100
	maxEntries = 10_000
	// maxTokens is the maximum number of JSON tokens in all pages. Two tokens can need hundreds of bytes of memory.
	maxTokens  = 250_000
	pageSize   = 100
	askTimeout = 10 * time.Second
)

// Client queries registries. It caches answers in ambit's home folder.
type Client struct {
	config Config
	cache  cache
	send   func(Host, *http.Request) (*http.Response, error)
}

// NewClient returns a client with the given configuration and a cache in h.
func NewClient(h home.Home, config Config) *Client {
	return &Client{config: config, cache: cache{dir: cacheDir(h), now: time.Now}, send: send}
}

// publicClient sends requests only to public addresses. localClient can also send requests to this machine.
var (
	publicClient = egress.New(egress.Switches{})
	localClient  = egress.New(egress.Switches{LoopbackHTTP: true})
)

// privateClient sends requests to registries in a private network. The other two clients reject private addresses.
var privateClient = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Transport:     &http.Transport{Proxy: nil, TLSHandshakeTimeout: askTimeout, MaxResponseHeaderBytes: 64 << 10},
}

func send(h Host, req *http.Request) (*http.Response, error) {
	switch {
	case h.configured && egress.IsLoopback(req.URL.Hostname()):
		return localClient.Do(req)
	case h.configured && h.Private:
		return privateClient.Do(req)
	}
	return publicClient.Do(req)
}

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

// Name returns the name that a server has in the registry of h. The name is the part of the id after the host. If that
// part has no namespace, Name adds the namespace of h.
func (h Host) Name(id string) (string, error) {
	_, rest, _ := strings.Cut(id, "/")
	switch {
	case rest == "":
		return "", fmt.Errorf("%s is not the id of a server", diag.Quote(id))
	case strings.Contains(rest, "/"):
		return rest, nil
	case h.Namespace == "":
		return "", fmt.Errorf("the server's name has no namespace; use a name with a namespace, such as %s",
			"io.github.example/"+rest)
	}
	return h.Namespace + "/" + rest, nil
}

// Versions returns all versions of the server with the given id, in no particular order. It queries the registry of
// host. The second result is a warning if the answer is outdated or could not be cached.
func (c *Client) Versions(ctx context.Context, host, id string) (list []Listing, warning string, err error) {
	h, ok := c.config.Hosts[host]
	if !ok {
		return nil, "", fmt.Errorf("the registry %s is not configured; add its URL to config.toml in [registry.%q]",
			diag.Quote(host), host)
	}
	name := id
	if strings.HasPrefix(id, host+"/") {
		if name, err = h.Name(id); err != nil {
			return nil, "", err
		}
	}
	return c.cache.get(h.URL+" "+name, func() ([]Listing, error) {
		return c.pages(ctx, h, "/v0.1/servers/"+url.PathEscape(name)+"/versions", url.Values{}, 0)
	})
}

// Search finds the servers whose names contain the given text. It returns the newest version of each server. It stops
// after the page on which the number of servers reaches the limit, so the result can exceed the limit.
func (c *Client) Search(ctx context.Context, host, text string, limit int) ([]Listing, error) {
	h, ok := c.config.Hosts[host]
	if !ok {
		return nil, fmt.Errorf("the registry %s is not configured", diag.Quote(host))
	}
	query := url.Values{"version": {"latest"}}
	if text != "" {
		query.Set("search", text)
	}
	return c.pages(ctx, h, "/v0.1/servers", query, limit)
}

// pages reads the pages of an answer until the number of entries reaches the limit. If the limit is 0, it reads all
// pages.
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
			return nil, fmt.Errorf("%w: the answer has more than %d entries", ErrUnreachable, maxEntries)
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
			return nil, fmt.Errorf("%w: the registry returned the same nextCursor twice", ErrUnreachable)
		}
		seen[next] = true
		query.Set("cursor", next)
	}
	return nil, fmt.Errorf("%w: the answer has more than %d pages", ErrUnreachable, maxPages)
}

// budget is the number of bytes and JSON tokens that the remaining pages of an answer are allowed to have.
type budget struct{ bytes, tokens int }

// take subtracts the bytes and tokens of one page from the budget. It is called before the page is decoded.
func (b *budget) take(body []byte) error {
	if b.bytes -= len(body); b.bytes < 0 {
		return fmt.Errorf("%w: the pages of the response exceed %d bytes in total", ErrUnreachable, maxBytes)
	}
	for d := json.NewDecoder(bytes.NewReader(body)); ; b.tokens-- {
		if _, err := d.Token(); err != nil {
			return nil // the page has ended, or its JSON is invalid; the caller reports invalid JSON
		}
		if b.tokens == 0 {
			return fmt.Errorf("%w: the answer has more than %d JSON tokens", ErrUnreachable, maxTokens)
		}
	}
}

func (c *Client) get(ctx context.Context, h Host, path string, left *budget) (*page, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+path, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: the address of the registry is not a URL", ErrUnreachable)
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
		return nil, fmt.Errorf("%w: the registry returned status %d", ErrUnreachable, resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: the connection broke while the answer was read", ErrUnreachable)
	case len(body) > maxBody:
		return nil, fmt.Errorf("%w: the answer is larger than %d bytes", ErrUnreachable, maxBody)
	}
	if err := left.take(body); err != nil {
		return nil, err
	}
	var p page
	if err := json.Unmarshal(body, &p); err != nil {
		return nil, fmt.Errorf("%w: the answer does not have the format of the MCP registry API", ErrUnreachable)
	}
	return &p, nil
}
