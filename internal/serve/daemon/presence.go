package daemon

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/store/home"
)

// A daemon writes two files to its home. Only the daemon's own user can read these files. The file run/serve-*.key
// contains the daemon's temporary key. The file daemon.json contains the daemon's address and the path of the key file.
// If other processes can join the daemon, the socket run/serve-*.sock is next to the key file. The daemon removes its
// files when it exits. A killed daemon leaves them behind, but no other daemon accepts its key or uses its socket.

// Presence is the content of daemon.json.
type Presence struct {
	URL     string `json:"url"`
	KeyFile string `json:"key_file"`
	// Socket is the path of the socket for joining processes. It is empty if no process can join.
	Socket string `json:"socket,omitempty"`
	PID    int    `json:"pid"`
	// Certificate is the SHA-256 hash of the TLS certificate. It is empty without TLS.
	Certificate string `json:"certificate,omitempty"`
	// Store is the URL of the store without its password. It is empty if the store is in the home folder. StorePassword
	// reports whether the original URL has a password.
	Store         string `json:"store,omitempty"`
	StorePassword bool   `json:"store_password,omitempty"`
	// Folders contains the folders of the served agents.
	Folders []string `json:"folders,omitempty"`
}

func presenceFile(h home.Home) string { return filepath.Join(h.Dir(), "daemon.json") }

// WriteKey writes a temporary key to a new file and returns the file's path.
func WriteKey(h home.Home, key string) (file string, err error) {
	dir := filepath.Join(h.Dir(), "run")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, "serve-*.key") // CreateTemp uses mode 0600
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(key + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// SocketFile returns the path of the socket for joining processes. The socket is next to the daemon's key file.
func SocketFile(keyFile string) string { return strings.TrimSuffix(keyFile, ".key") + ".sock" }

// Announce writes daemon.json. If another daemon is running in the same home, Announce writes nothing and returns the
// [Presence] of that daemon. If daemon.json describes a daemon that is no longer running, Announce removes the key file
// of that daemon.
func Announce(ctx context.Context, h home.Home, p Presence) (other *Presence, err error) {
	if c, err := FindDaemon(h); err == nil {
		if c.URL != p.URL && c.Alive(ctx) { // if the addresses are equal, this daemon itself would answer Alive
			return &c.Presence, nil
		}
		if filepath.Dir(c.KeyFile) == filepath.Join(h.Dir(), "run") {
			_ = os.Remove(c.KeyFile) // the daemon has ended, so its key is invalid
			_ = os.Remove(SocketFile(c.KeyFile))
		}
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	return nil, home.Replace(presenceFile(h), 0o600, append(text, '\n'))
}

// Leave removes the key file of a daemon. It also removes daemon.json if that file still describes the same daemon.
func Leave(h home.Home, p Presence) {
	_ = os.Remove(p.KeyFile)
	_ = os.Remove(SocketFile(p.KeyFile))
	if c, err := FindDaemon(h); err == nil && c.PID == p.PID && c.KeyFile == p.KeyFile {
		_ = os.Remove(presenceFile(h))
	}
}

// Client calls the daemon that daemon.json describes, or the daemon at another address.
type Client struct {
	Presence
	http *http.Client
	key  string // used instead of the key file
}

// NewClient returns a client for the daemon at an address. The key is an API key or a token. The client sends the key
// only over https or to this machine.
func NewClient(address, key string) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the address is not a URL such as https://ambit.example.com")
	}
	at, err := netip.ParseAddr(u.Hostname())
	if u.Scheme != "https" && (u.Scheme != "http" || u.Hostname() != "localhost" && (err != nil || !at.IsLoopback())) {
		return nil, errors.New("the address does not begin with https://, so others could read the key")
	}
	return &Client{Presence: Presence{URL: strings.TrimSuffix(address, "/")}, http: withoutRedirects(), key: key}, nil
}

func withoutRedirects() *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// ErrNoDaemon reports that no daemon is running in a home.
var ErrNoDaemon = errors.New("no daemon is running")

// FindDaemon returns a client for the daemon that daemon.json describes. This daemon may no longer be running.
// FindDaemon returns ErrNoDaemon if daemon.json is missing or invalid.
func FindDaemon(h home.Home) (*Client, error) {
	text, err := os.ReadFile(presenceFile(h))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoDaemon
	}
	if err != nil {
		return nil, err
	}
	c := &Client{http: withoutRedirects()}
	if err := json.Unmarshal(text, &c.Presence); err != nil || c.URL == "" {
		return nil, ErrNoDaemon
	}
	if c.Certificate != "" {
		// The certificate may be for a different host or from an unknown issuer. The usual verification would reject such a
		// certificate, so the client compares the certificate's fingerprint with the one in daemon.json instead.
		c.http.Transport = &http.Transport{TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true,
			VerifyConnection: func(s tls.ConnectionState) error {
				got := Fingerprint(s.PeerCertificates[0].Raw)
				if subtle.ConstantTimeCompare([]byte(got), []byte(c.Certificate)) != 1 {
					return errors.New("the certificate differs from the one with which the daemon started")
				}
				return nil
			},
		}}
	}
	return c, nil
}

// Fingerprint returns the SHA-256 hash of a certificate in hexadecimal.
func Fingerprint(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// Alive reports whether the daemon answers within two seconds.
func (c *Client) Alive(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"/healthz", nil)
	if err != nil {
		return false
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// APIError is an error response of the daemon.
type APIError struct {
	Status              int
	Code, Message, Hint string
}

func (e *APIError) Error() string { return e.Message }

// maxAnswer is the maximum size of a response.
const maxAnswer = 64 << 20

// Do sends a request to the API and decodes the response into out. It returns ErrNoDaemon if no daemon answers. It
// returns an *APIError if the daemon answers with an error.
func (c *Client) Do(ctx context.Context, method, path string, out any) error {
	return c.Send(ctx, method, path, nil, out)
}

// Send is like Do, but the request contains a JSON document unless doc is nil.
func (c *Client) Send(ctx context.Context, method, path string, doc, out any) error {
	key := c.key
	if key == "" {
		text, err := os.ReadFile(c.KeyFile)
		if errors.Is(err, fs.ErrNotExist) {
			return ErrNoDaemon
		}
		if err != nil {
			return err
		}
		key = strings.TrimSpace(string(text))
	}
	var sent io.Reader
	if doc != nil {
		sent = bytes.NewReader(encode(doc))
	}
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, sent)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return ErrNoDaemon
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		var doc struct {
			Error struct{ Code, Message, Hint string } `json:"error"`
		}
		if json.Unmarshal(body, &doc) != nil || doc.Error.Code == "" {
			// The response comes from a program that is not a daemon.
			return ErrNoDaemon
		}
		return &APIError{resp.StatusCode, doc.Error.Code, doc.Error.Message, doc.Error.Hint}
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("the daemon's response is invalid: %w", err)
	}
	return nil
}
