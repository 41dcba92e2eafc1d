package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/supply/pack"
	"github.com/ambit-run/ambit/tooluri"
)

const (
	downloadTimeout = 10 * time.Minute
	maxRedirects    = 5
)

// bundle checks that a bundle is one archive at one address with a hash.
func (p *Package) bundle() error {
	if !tooluri.IsDigest("sha256:" + strings.ToLower(p.FileSHA256)) {
		return fmt.Errorf("the bundle has no sha256")
	}
	u, err := url.Parse(p.Identifier)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.Fragment != "" || strings.ContainsAny(p.Identifier, "{}") {
		return fmt.Errorf("its identifier is not the address of an archive")
	}
	return nil
}

// bundle returns a function that opens the package of a bundle. It downloads the
// bundle if the store does not have it and registries may be contacted.
func (r *Resolver) bundle(id string, recipe Recipe) func(context.Context, pack.Want, pack.Progress) (*pack.Package, error) {
	return func(ctx context.Context, want pack.Want, progress pack.Progress) (*pack.Package, error) {
		var get pack.Download
		if r.Client != nil {
			host, _, _ := strings.Cut(id, "/")
			get = func(ctx context.Context, to io.Writer) error { return r.Client.download(ctx, host, recipe.Name, to) }
		}
		store := pack.Store{Dir: r.Home.Packages()}
		return store.FetchBundle(ctx, pack.Ref{Kind: pack.MCPB, Name: recipe.Name}, want, get, progress)
	}
}

// download fetches an address that a registry gave. Archives are often stored
// elsewhere, so it follows redirects. Every address on the way must be public and use
// https, or be the registry's own.
func (c *Client) download(ctx context.Context, host, address string, to io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	at, err := url.Parse(address)
	if err != nil {
		return errors.New("its address is not a URL")
	}
	for range maxRedirects + 1 {
		resp, err := c.fetch(ctx, c.config.Hosts[host], at)
		if err != nil {
			return err
		}
		switch resp.StatusCode {
		case http.StatusOK:
			defer resp.Body.Close()
			_, err := io.Copy(to, resp.Body)
			return err
		case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
			resp.Body.Close()
			if at, err = at.Parse(resp.Header.Get("Location")); err != nil || resp.Header.Get("Location") == "" {
				return errors.New("its redirect has no address")
			}
		default:
			resp.Body.Close()
			return fmt.Errorf("%s returned status %d", diag.Quote(at.Hostname()), resp.StatusCode)
		}
	}
	return fmt.Errorf("it is redirected more than %d times", maxRedirects)
}

// fetch requests one address: with the registry's own client if the address is the
// registry's, and otherwise with the client for public addresses.
func (c *Client) fetch(ctx context.Context, h Host, at *url.URL) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, errors.New("its address is not a URL")
	}
	req.Header.Set("User-Agent", "ambit")
	own, err := url.Parse(h.URL)
	if err != nil || !egress.Same(own, at) {
		h = Host{}
	}
	resp, err := c.send(h, req)
	if r, ok := errors.AsType[*call.Refusal](err); ok {
		return nil, errors.New(r.Message)
	}
	return resp, err
}
