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

// s3 is a minimal S3 client. It can only list and get objects, because reading a bundle needs nothing else. It signs
// requests with AWS Signature Version 4 and puts the bucket in the path. An SDK would add hundreds of packages for
// these two operations.
type s3 struct {
	endpoint *url.URL
	bucket   string
	region   string
	// keys returns the access key and the secret key. It is a function because printing the client must not print the
	// keys.
	keys  func() (access, secret string)
	http  *http.Client
	now   func() time.Time
	pause func(context.Context, time.Duration) error
}

func newS3(c *StoreConfig, keys func() (string, string)) (*s3, error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil {
		return nil, errors.New("\"endpoint\" is not a URL")
	}
	return &s3{
		endpoint: u, bucket: c.Bucket, region: c.Region, keys: keys, now: time.Now, pause: pause,
		http: &http.Client{
			Timeout: 30 * time.Second,
			// A signature is valid for one host only, so the client does not follow redirects.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type object struct {
	Key  string
	Size int64
}

// maxPage limits the size of one page of a list, in bytes. A page has at most 1,000 keys of 1 KiB each.
const maxPage = 8 << 20

// maxPages limits the number of pages, because a server could return empty pages without end.
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
		text, err := s.get(ctx, "", query, maxPage)
		if err != nil {
			return nil, err
		}
		var page struct {
			Contents              []object
			IsTruncated           bool
			NextContinuationToken string
		}
		if err := xml.Unmarshal(text, &page); err != nil {
			return nil, fmt.Errorf("the list of objects in the bucket %s is not a valid S3 response", s.bucket)
		}
		objects = append(objects, page.Contents...)
		if len(objects) > maxFiles {
			return nil, fmt.Errorf("the bucket %s contains more than %d files below %s", s.bucket, maxFiles, prefix)
		}
		if !page.IsTruncated {
			return objects, nil
		}
		if page.NextContinuationToken == "" || page.NextContinuationToken == token {
			return nil, fmt.Errorf("the list of objects in the bucket %s is not a valid S3 response: "+
				"the token for the next page is missing or repeated", s.bucket)
		}
		token = page.NextContinuationToken
	}
	return nil, fmt.Errorf("the list of objects in the bucket %s has more than %d pages", s.bucket, maxPages)
}

// attempts is the maximum number of attempts to send a request.
const attempts = 3

// get gets an object, or the list of objects if key is empty. It retries the request after temporary failures. It fails
// if the response is larger than the given number of bytes.
func (s *s3) get(ctx context.Context, key string, query url.Values, limit int64) ([]byte, error) {
	wait := 200 * time.Millisecond
	for n := 1; ; n++ {
		text, retry, err := s.send(ctx, key, query, limit)
		if err == nil || !retry || n == attempts || ctx.Err() != nil {
			return text, err
		}
		if s.pause(ctx, wait) != nil {
			return nil, err
		}
		wait *= 4
	}
}

// send sends a request without retrying. The second result reports whether another attempt could succeed.
func (s *s3) send(ctx context.Context, key string, query url.Values, limit int64) (text []byte, retry bool, err error) {
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
		return nil, true, fmt.Errorf("the connection broke while the skill store's response was read: %w", err)
	case resp.StatusCode != http.StatusOK:
		retry = resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests
		return nil, retry, s.statusError(resp.StatusCode, key, text)
	case int64(len(text)) > limit:
		return nil, false, fmt.Errorf("the skill store's response for %s is larger than %d bytes", key, limit)
	}
	return text, false, nil
}

// statusError returns the error for a response with a status other than 200.
func (s *s3) statusError(status int, key string, body []byte) error {
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
	return fmt.Errorf("the skill store returned status %d for %s: %s", status, place, diag.Printable(what))
}

// request returns a signed request for an object, or for the bucket if key is empty.
func (s *s3) request(ctx context.Context, key string, query url.Values) (*http.Request, error) {
	u := *s.endpoint
	raw := strings.TrimSuffix(u.Path, "/") + "/" + s.bucket
	if key != "" {
		raw += "/" + key
	}
	u.Path, u.RawPath, u.RawQuery = raw, escape(raw), strings.ReplaceAll(query.Encode(), "+", "%20")
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

// sign adds the headers of AWS Signature Version 4 to a request. The parameter hash is the sha256 of the body. The
// signature covers every header of the request.
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
	request := strings.Join([]string{
		req.Method, req.URL.EscapedPath(), req.URL.RawQuery, canonical.String(), signed, hash,
	}, "\n")
	scope := stamp[:8] + "/" + region + "/s3/aws4_request"
	sum := sha256.Sum256([]byte(request))
	text := "AWS4-HMAC-SHA256\n" + stamp + "\n" + scope + "\n" + hex.EncodeToString(sum[:])
	key := []byte("AWS4" + secret)
	for _, part := range []string{stamp[:8], region, "s3", "aws4_request", text} {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(part))
		key = m.Sum(nil)
	}
	req.Header.Set("Authorization",
		"AWS4-HMAC-SHA256 Credential="+access+"/"+scope+", SignedHeaders="+signed+", Signature="+hex.EncodeToString(key))
}

// escape escapes every character of a path except letters, digits, - . _ ~ and /.
func escape(path string) string {
	return strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(path))
}
