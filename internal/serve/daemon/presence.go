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
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/store/home"
)

// A daemon writes two files to its home, readable by its own user only: run/*.key contains its
// temporary key, and daemon.json its address and the path of the key. It removes both when it ends.
// If it is killed they stay, but are useless: the key existed in its memory only.

// Presence is the content of daemon.json.
type Presence struct {
	URL     string `json:"url"`
	KeyFile string `json:"key_file"`
	PID     int    `json:"pid"`
	// Certificate is the sha256 of the TLS certificate; empty without TLS.
	Certificate string `json:"certificate,omitempty"`
	// Store is the store's URL without a password, empty for the store in the home. StorePassword
	// reports that a password was left out.
	Store         string `json:"store,omitempty"`
	StorePassword bool   `json:"store_password,omitempty"`
}

func presenceFile(h home.Home) string { return filepath.Join(h.Dir(), "daemon.json") }

// WriteKey writes a temporary key to a new file.
func WriteKey(h home.Home, key string) (file string, err error) {
	dir := filepath.Join(h.Dir(), "run")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, "serve-*.key") // mode 0600
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(key + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// Announce writes daemon.json, unless another daemon is running: then it returns that one. It
// removes the files of a daemon that has ended.
func Announce(ctx context.Context, h home.Home, p Presence) (other *Presence, err error) {
	if c, err := FindDaemon(h); err == nil {
		if c.Alive(ctx) {
			return &c.Presence, nil
		}
		if filepath.Dir(c.KeyFile) == filepath.Join(h.Dir(), "run") {
			_ = os.Remove(c.KeyFile) // useless by now
		}
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	return nil, home.Replace(presenceFile(h), 0o600, append(text, '\n'))
}

// Leave removes a daemon's files, and daemon.json only if it is still its own.
func Leave(h home.Home, p Presence) {
	_ = os.Remove(p.KeyFile)
	if c, err := FindDaemon(h); err == nil && c.Presence == p {
		_ = os.Remove(presenceFile(h))
	}
}

// Client calls the daemon of a home.
type Client struct {
	Presence
	http *http.Client
}

// ErrNoDaemon reports a home without a running daemon.
var ErrNoDaemon = errors.New("no daemon is running")

// FindDaemon returns a client of a home's daemon, or ErrNoDaemon if there is no daemon.json.
func FindDaemon(h home.Home) (*Client, error) {
	text, err := os.ReadFile(presenceFile(h))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoDaemon
	}
	if err != nil {
		return nil, err
	}
	c := &Client{http: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if err := json.Unmarshal(text, &c.Presence); err != nil || c.URL == "" {
		return nil, ErrNoDaemon
	}
	if c.Certificate != "" {
		// The certificate may name another host or an unknown issuer: it must be exactly this
		// one.
		c.http.Transport = &http.Transport{TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true,
			VerifyConnection: func(s tls.ConnectionState) error {
				if got := Fingerprint(s.PeerCertificates[0].Raw); subtle.ConstantTimeCompare([]byte(got), []byte(c.Certificate)) != 1 {
					return errors.New("the certificate is not the one that the daemon started with")
				}
				return nil
			},
		}}
	}
	return c, nil
}

// Fingerprint is the SHA-256 of a certificate.
func Fingerprint(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// Alive reports whether the daemon answers.
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

// maxAnswer bounds a response.
const maxAnswer = 64 << 20

// Do calls the API and decodes the response into out. It returns ErrNoDaemon if the daemon does not
// answer, and an *APIError for an error response.
func (c *Client) Do(ctx context.Context, method, path string, out any) error {
	key, err := os.ReadFile(c.KeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNoDaemon
	}
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(key)))
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
			// Another program answers at that address.
			return ErrNoDaemon
		}
		return &APIError{resp.StatusCode, doc.Error.Code, doc.Error.Message, doc.Error.Hint}
	}
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(out); err != nil {
		return fmt.Errorf("the daemon's response is invalid: %w", err)
	}
	return nil
}
