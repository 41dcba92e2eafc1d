package signin

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// The values of the setting "grant". With these grants, ambit obtains tokens without a person.
const (
	// clientGrant authenticates the client with its secret, or with its private key (RFC 7523).
	clientGrant = "client_credentials"
	// workloadGrant presents a token that the platform gave to this process, such as a Kubernetes service account token.
	workloadGrant = "jwt_bearer"
	// enterpriseGrant exchanges an ID token of the organization's identity provider for an assertion about the user
	// (ID-JAG), and presents it.
	enterpriseGrant = "id_jag"
)

const (
	jwtBearer       = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	assertionType   = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
	assertionLife   = 5 * time.Minute
	assertionMethod = "private_key_jwt"
)

// obtain requests a token without a person. The settings determine the grant.
func (k *Keeper) obtain(ctx context.Context, t *Target, challenges []oauthex.Challenge, u Upstream) (*grant, error) {
	p, err := k.discover(ctx, t.Endpoint, challenges, u)
	if err != nil {
		return nil, err
	}
	scopes := slices.DeleteFunc(chooseScopes(p, u, parameter(challenges, "scope"), nil), func(s string) bool {
		// The scope for refresh tokens is not needed, because the client can request another token.
		return s == offline
	})
	c := client{Issuer: p.Issuer, ID: u.ClientID, Secret: u.secret}
	c.Method = secretMethod(u.secret, p.TokenEndpointAuthMethodsSupported)
	form := url.Values{"resource": {p.resource}}
	if u.Grant != clientGrant {
		assertion, err := k.assertion(ctx, p, u, scopes)
		if err != nil {
			return nil, err
		}
		form.Set("grant_type", jwtBearer)
		form.Set("assertion", assertion)
	}
	if strings.HasPrefix(u.secret, "-----BEGIN ") {
		assertion, err := signAssertion(u.secret, u.ClientID, p.Issuer)
		if err != nil {
			return nil, err
		}
		form.Set("client_assertion_type", assertionType)
		form.Set("client_assertion", assertion)
		c.Secret, c.Method = "", assertionMethod
	}
	config := clientcredentials.Config{
		ClientID: c.ID, ClientSecret: c.Secret, TokenURL: p.TokenEndpoint, Scopes: scopes, EndpointParams: form,
		AuthStyle: c.config(p.TokenEndpoint).Endpoint.AuthStyle,
	}
	key, err := newProofKey(p.proofs)
	if err != nil {
		return nil, err
	}
	token, err := config.Token(k.withClient(ctx, key))
	if err != nil {
		return nil, fmt.Errorf("the authorization server %s did not issue a token: %w", diag.Quote(p.Issuer), codeOnly(err))
	}
	c.Secret = ""           // the settings contain the secret
	token.RefreshToken = "" // a new token is requested from the settings, without a refresh token
	g := &grant{
		Principal: t.Principal, Resource: p.resource, Issuer: p.Issuer, Client: c,
		TokenURL: p.TokenEndpoint, RevokeURL: p.RevocationEndpoint, Scopes: scopes, Key: key,
	}
	return g, g.accept(token)
}

// assertion returns the assertion that a grant presents. For workloadGrant, this is the token in the file. For
// enterpriseGrant, it is an assertion that the identity provider issues in exchange for the ID token in the file.
func (k *Keeper) assertion(ctx context.Context, p *provider, u Upstream, scopes []string) (string, error) {
	text, err := readAssertion(u.AssertionFile)
	if err != nil || u.Grant == workloadGrant {
		return text, err
	}
	if err := k.secure(u.IDPTokenURL); err != nil {
		return "", err
	}
	token, err := oauthex.ExchangeToken(ctx, u.IDPTokenURL, &oauthex.TokenExchangeRequest{
		RequestedTokenType: oauthex.TokenTypeIDJAG, Audience: p.Issuer, Resource: p.resource, Scope: scopes,
		SubjectToken: text, SubjectTokenType: oauthex.TokenTypeIDToken,
	}, &oauthex.ClientCredentials{ClientID: u.IDPClientID}, k.client)
	if err != nil {
		return "", fmt.Errorf("the identity provider did not exchange the ID token: %w", codeOnly(err))
	}
	return token.AccessToken, nil
}

// readAssertion reads the token that the platform wrote to a file. The platform replaces the file from time to time.
func readAssertion(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("the assertion cannot be read: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil || len(text) > maxToken || len(text) == 0 {
		return "", fmt.Errorf("the file %s is empty, cannot be read, or has more than %d bytes", diag.Quote(file), maxToken)
	}
	return strings.TrimSpace(string(text)), nil
}

// signAssertion returns an assertion with which a client authenticates. The audience is the authorization server.
func signAssertion(key, clientID, issuer string) (string, error) {
	private, algorithm, err := readPrivateKey(key)
	if err != nil {
		return "", err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: private}, nil)
	if err != nil {
		return "", errors.New("cannot sign with the private key of the client")
	}
	now := time.Now()
	text, err := jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: clientID, Subject: clientID, Audience: jwt.Audience{issuer}, ID: rand.Text(),
		IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(assertionLife)),
	}).Serialize()
	if err != nil {
		return "", errors.New("cannot sign with the private key of the client")
	}
	return text, nil
}

// readPrivateKey parses a PKCS#8 key. Its errors do not quote the key.
func readPrivateKey(text string) (crypto.PrivateKey, jose.SignatureAlgorithm, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, "", errors.New("the private key of the client is not in PEM format")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, "", errors.New("the private key of the client is not in PKCS#8 format")
	}
	switch key := key.(type) {
	case *rsa.PrivateKey:
		return key, jose.RS256, nil
	case *ecdsa.PrivateKey:
		if key.Curve == elliptic.P256() {
			return key, jose.ES256, nil
		}
	}
	return nil, "", errors.New("the private key of the client is neither RSA nor ECDSA with P-256")
}
