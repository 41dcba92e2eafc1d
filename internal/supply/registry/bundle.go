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

// checkBundle returns an error if the package has no sha256, or if its identifier is not the URL of an archive.
func (p *Package) checkBundle() error {
	if !tooluri.IsDigest("sha256:" + strings.ToLower(p.FileSHA256)) {
		return fmt.Errorf("the bundle has no sha256")
	}
	u, err := url.Parse(p.Identifier)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.Fragment != "" ||
		strings.ContainsAny(p.Identifier, "{}") {
		return fmt.Errorf("the identifier of the bundle is not an http or https URL")
	}
	return nil
}

// opener opens a package. If necessary, it fetches the package first.
type opener = func(ctx context.Context, want pack.Want, progress pack.Progress) (*pack.Package, error)

// bundle returns an opener for a bundle. If the store does not contain the bundle, the opener downloads it. If r.Client
// is nil, the opener returns an error instead of downloading the bundle.
func (r *Resolver) bundle(id string, recipe Recipe) opener {
	return func(ctx context.Context, want pack.Want, progress pack.Progress) (*pack.Package, error) {
		if r.Client != nil {
			host := r.Config.hostOf(id)
			want.Download = func(ctx context.Context, w io.Writer) error {
				return r.Client.download(ctx, host, recipe.Name, w)
			}
		}
		store := pack.Store{Dir: r.Home.Packages()}
		return store.Fetch(ctx, pack.Ref{Kind: pack.MCPB, Name: recipe.Name}, want, progress)
	}
}

// download downloads an archive from an address in the registry's answer and writes it to w. It follows redirects,
// because archives are often stored on another host. The address and every redirect target must be a public https
// address or an address of the registry itself.
func (c *Client) download(ctx context.Context, host, address string, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	at, err := url.Parse(address)
	if err != nil {
		return errors.New("the bundle's address is not a URL")
	}
	for range maxRedirects + 1 {
		resp, err := c.fetch(ctx, c.config.Hosts[host], at)
		if err != nil {
			return err
		}
		switch resp.StatusCode {
		case http.StatusOK:
			defer resp.Body.Close()
			_, err := io.Copy(w, resp.Body)
			return err
		case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
			http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
			resp.Body.Close()
			if at, err = at.Parse(resp.Header.Get("Location")); err != nil || resp.Header.Get("Location") == "" {
				return errors.New("a redirect has no valid Location header")
			}
		default:
			resp.Body.Close()
			return fmt.Errorf("%s returned status %d", diag.Quote(at.Hostname()), resp.StatusCode)
		}
	}
	return fmt.Errorf("the download was redirected more than %d times", maxRedirects)
}

// fetch requests one address. For an address of the registry h, it uses the client that is configured for h. For every
// other address, it uses the client for public addresses.
func (c *Client) fetch(ctx context.Context, h Host, at *url.URL) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, errors.New("the bundle's address is not a URL")
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
