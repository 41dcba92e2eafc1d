package skill

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// s3 is a minimal S3 client for reading a bundle: list and get, signed with AWS
// Signature Version 4, with the bucket in the path. An SDK adds hundreds of packages
// for these two requests.
type s3 struct {
	endpoint *url.URL
	bucket   string
	region   string
	// keys is a function so that printing the client does not print the keys.
	keys func() (access, secret string)
	http *http.Client
	now  func() time.Time
	// pause waits between attempts.
	pause func(context.Context, time.Duration) error
}

func newS3(c *StoreConfig, keys func() (string, string)) (*s3, error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil {
		return nil, errors.New("endpoint is not a URL")
	}
	return &s3{
		endpoint: u, bucket: c.Bucket, region: c.Region, keys: keys, now: time.Now, pause: pause,
		http: &http.Client{
			Timeout: 30 * time.Second,
			// A signature is for one host, so redirects are not followed.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type object struct {
	Key  string
	Size int64
}

// maxPage limits one page of a list, which has at most a thousand keys of a kilobyte.
const maxPage = 8 << 20

// maxPages limits a list with endless empty pages.
const maxPages = 1000

// list returns every object whose key starts with prefix.
func (s *s3) list(ctx context.Context, prefix string) ([]object, error) {
	var objects []object
	token := ""
	for range maxPages {
		query := url.Values{"list-type": {"2"}, "prefix": {prefix}}
		if token != "" {
			query.Set("continuation-token", token)
		}
		text, err := s.do(ctx, "", query, maxPage)
		if err != nil {
			return nil, err
		}
		var page struct {
			Contents              []object
			IsTruncated           bool
			NextContinuationToken string
		}
		if err := xml.Unmarshal(text, &page); err != nil {
			return nil, fmt.Errorf("the list of %s is not a valid S3 response", s.bucket)
		}
		objects = append(objects, page.Contents...)
		if len(objects) > maxFiles {
			return nil, fmt.Errorf("%s contains more than %d files below %s", s.bucket, maxFiles, prefix)
		}
		if !page.IsTruncated {
			return objects, nil
		}
		if page.NextContinuationToken == "" || page.NextContinuationToken == token {
			return nil, fmt.Errorf("the list of %s is not a valid S3 response: its next page has no token", s.bucket)
		}
		token = page.NextContinuationToken
	}
	return nil, fmt.Errorf("the list of %s has more than %d pages", s.bucket, maxPages)
}

// get reads an object.
func (s *s3) get(ctx context.Context, key string) ([]byte, error) {
	return s.do(ctx, key, nil, maxDocument)
}

// attempts is how often a failed request is sent.
const attempts = 3

// do sends a request, and repeats it after temporary failures.
func (s *s3) do(ctx context.Context, key string, query url.Values, limit int64) ([]byte, error) {
	wait := 200 * time.Millisecond
	for n := 1; ; n++ {
		text, again, err := s.once(ctx, key, query, limit)
		if err == nil || !again || n == attempts || ctx.Err() != nil {
			return text, err
		}
		if s.pause(ctx, wait) != nil {
			return nil, err
		}
		wait *= 4
	}
}

// once sends a request. again means that another attempt may succeed.
func (s *s3) once(ctx context.Context, key string, query url.Values, limit int64) (text []byte, again bool, err error) {
	req, err := s.request(ctx, key, query)
	if err != nil {
		return nil, false, err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, true, fmt.Errorf("the skill store is unreachable: %w", err)
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, true, fmt.Errorf("the skill store's response was cut off: %w", err)
	case resp.StatusCode != http.StatusOK:
		return nil, resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests, s.refused(resp.StatusCode, key, text)
	case int64(len(text)) > limit:
		return nil, false, fmt.Errorf("the skill store's response for %s is larger than %d bytes", key, limit)
	}
	return text, false, nil
}

// refused returns the error of an unsuccessful response.
func (s *s3) refused(status int, key string, body []byte) error {
	var answer struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
	}
	what := http.StatusText(status)
	if xml.Unmarshal(body, &answer) == nil && answer.Code != "" {
		what = answer.Code
	}
	place := s.bucket
	if key != "" {
		place += "/" + key
	}
	return fmt.Errorf("the skill store returned %d for %s: %s", status, place, diag.Printable(what))
}

// request returns a signed request for an object, or for the bucket.
func (s *s3) request(ctx context.Context, key string, query url.Values) (*http.Request, error) {
	u := *s.endpoint
	raw := strings.TrimSuffix(u.Path, "/") + "/" + s.bucket
	if key != "" {
		raw += "/" + key
	}
	u.Path, u.RawPath, u.RawQuery = raw, escape(raw, true), canonicalQuery(query)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("%s is not a valid key", diag.Quote(key))
	}
	access, secret := s.keys()
	sign(req, emptyHash, access, secret, s.region, s.now())
	return req, nil
}

// emptyHash is the sha256 of an empty body.
const emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// sign adds the headers of AWS Signature Version 4 to a request whose body has this
// hash. It signs every header of the request.
func sign(req *http.Request, hash, access, secret, region string, now time.Time) {
	stamp := now.UTC().Format("20060102T150405Z")
	req.Header.Set("X-Amz-Date", stamp)
	req.Header.Set("X-Amz-Content-Sha256", hash)
	headers := map[string]string{"host": req.URL.Host}
	names := []string{"host"}
	for name := range req.Header {
		lower := strings.ToLower(name)
		names, headers[lower] = append(names, lower), strings.TrimSpace(req.Header.Get(name))
	}
	slices.Sort(names)
	var canonical strings.Builder
	for _, name := range names {
		canonical.WriteString(name + ":" + headers[name] + "\n")
	}
	signed := strings.Join(names, ";")
	request := strings.Join([]string{req.Method, req.URL.EscapedPath(), req.URL.RawQuery, canonical.String(), signed, hash}, "\n")
	scope := stamp[:8] + "/" + region + "/s3/aws4_request"
	sum := sha256.Sum256([]byte(request))
	text := "AWS4-HMAC-SHA256\n" + stamp + "\n" + scope + "\n" + hex.EncodeToString(sum[:])
	key := []byte("AWS4" + secret)
	for _, part := range []string{stamp[:8], region, "s3", "aws4_request", text} {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(part))
		key = m.Sum(nil)
	}
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+access+"/"+scope+", SignedHeaders="+signed+", Signature="+hex.EncodeToString(key))
}

// canonicalQuery is the query in the order and encoding that is signed and sent.
func canonicalQuery(query url.Values) string {
	var parts []string
	for name, values := range query {
		for _, v := range values {
			parts = append(parts, escape(name, false)+"="+escape(v, false))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, "&")
}

// escape escapes everything but letters, digits, - . _ ~ and, in a path, /.
func escape(s string, path bool) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0, path && c == '/':
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}
