package signin

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/oauth2"
)

// DPoP (RFC 9449) binds tokens to a key: each request with a token contains a proof that the sender has the key. A
// stolen token is useless without the key.
const (
	typeDPoP = "DPoP" // the type of the token, the scheme, and the header with the proof
	// nonceWanted is the error of a server that requires its nonce in the proof.
	nonceWanted = "use_dpop_nonce"
	// maxNonce is the maximum length of a server's nonce.
	maxNonce = 1 << 10
)

// newProofKey returns a key for the tokens of an authorization server. It returns nil if the server does not list
// ES256 among its algorithms for proofs.
func newProofKey(proofs []string) (*jose.JSONWebKey, error) {
	if !slices.Contains(proofs, string(jose.ES256)) {
		return nil, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return &jose.JSONWebKey{Key: key}, nil
}

// prove returns the proof for a request. The token and the nonce may be empty.
func prove(key *jose.JSONWebKey, method string, u *url.URL, token, nonce string) (string, error) {
	o := (&jose.SignerOptions{EmbedJWK: true}).WithType("dpop+jwt")
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key.Key}, o)
	if err != nil {
		return "", errors.New("cannot create a signature with the key that was stored at the sign-in")
	}
	claims := struct {
		ID     string           `json:"jti"`
		Method string           `json:"htm"`
		URL    string           `json:"htu"`
		Issued *jwt.NumericDate `json:"iat"`
		Token  string           `json:"ath,omitempty"`
		Nonce  string           `json:"nonce,omitempty"`
	}{
		ID: rand.Text(), Method: method, Issued: jwt.NewNumericDate(time.Now()), Nonce: nonce,
		URL: (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String(),
	}
	if token != "" {
		sum := sha256.Sum256([]byte(token))
		claims.Token = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		return "", errors.New("cannot create a signature with the key that was stored at the sign-in")
	}
	return text, nil
}

// nonceOf returns the nonce in a response. It returns "" if the nonce is missing or too long.
func nonceOf(resp *http.Response) string {
	if nonce := resp.Header.Get("DPoP-Nonce"); len(nonce) <= maxNonce {
		return nonce
	}
	return ""
}

// prover adds proofs to token requests. If the authorization server asks for its nonce in the proof, prover sends the
// request again with the nonce.
type prover struct {
	next http.RoundTripper
	key  *jose.JSONWebKey
}

func (p prover) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := p.send(req, req.Body, "")
	if err != nil || resp.StatusCode != http.StatusBadRequest || nonceOf(resp) == "" || req.GetBody == nil {
		return resp, err
	}
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	var failure struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(text, &failure) != nil || failure.Error != nonceWanted {
		resp.Body = io.NopCloser(bytes.NewReader(text))
		return resp, nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	return p.send(req, body, nonceOf(resp))
}

func (p prover) send(req *http.Request, body io.ReadCloser, nonce string) (*http.Response, error) {
	proof, err := prove(p.key, req.Method, req.URL, "", nonce)
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Body = body
	req.Header.Set(typeDPoP, proof)
	return p.next.RoundTrip(req)
}

// withClient returns a context that makes x/oauth2 send its requests with the keeper's client. If the key is not nil,
// the requests contain proofs.
func (k *Keeper) withClient(ctx context.Context, key *jose.JSONWebKey) context.Context {
	c := *k.client
	if key != nil {
		c.Transport = prover{c.Transport, key}
	}
	return context.WithValue(ctx, oauth2.HTTPClient, &c)
}

// Prove adds a proof to a request if its token is bound to a key.
func (s *Session) Prove(req *http.Request) error {
	scheme, token := credentials(req)
	if scheme != typeDPoP {
		return nil
	}
	g, err := s.keeper.load(&s.target)
	if err == nil && g.Key == nil {
		err = errors.New("the sign-in was removed while the request was prepared")
	}
	if err != nil {
		return s.target.unusable(err)
	}
	nonce, _ := s.nonce.Load().(string)
	proof, err := prove(g.Key, req.Method, req.URL, token, nonce)
	if err != nil {
		return s.target.unusable(err)
	}
	req.Header.Set(typeDPoP, proof)
	return nil
}

// announcedProofs records the algorithms for proofs that an authorization server's metadata lists. The SDK's type for
// the metadata has no field for these algorithms.
type announcedProofs struct {
	next http.RoundTripper
	mu   sync.Mutex
	list []string
}

func (a *announcedProofs) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := a.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
	var meta struct {
		List []string `json:"dpop_signing_alg_values_supported"`
	}
	if json.Unmarshal(text, &meta) == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.list = meta.List
	}
	return resp, nil
}
