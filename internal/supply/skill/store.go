package skill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"

	"github.com/ambit-run/ambit/internal/store/home"
)

// StoreConfig is the [skills] table of config.toml: the bucket that skills_source
// keys are looked up in. Anything that speaks S3 will do.
//
//	[skills]
//	endpoint = "https://ACCOUNT.r2.cloudflarestorage.com"
//	bucket = "skills"
//	region = "auto"                             # the default
//	access_key_ref = "skills:access_key"        # the default
//	secret_key_ref = "skills:secret_key"        # the default
//
// The last two name credentials and hold none: set them with ambit secret set
// ambit REF. They start with skills:, which no ref in a manifest can, so that no
// agent gets them whatever it is called.
type StoreConfig struct {
	Endpoint  string `toml:"endpoint"`
	Bucket    string `toml:"bucket"`
	Region    string `toml:"region"`
	AccessKey string `toml:"access_key_ref"`
	SecretKey string `toml:"secret_key_ref"`
}

const refPrefix = "skills:"

// ReadStore reads the [skills] table of a file; nil if there is none. Unknown keys are
// errors.
func ReadStore(file string) (*StoreConfig, error) {
	c := &StoreConfig{Region: "auto", AccessKey: refPrefix + "access_key", SecretKey: refPrefix + "secret_key"}
	if found, err := home.ReadTable(file, "skills", c); err != nil || !found {
		return nil, err
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("%s: [skills]: %w", file, err)
	}
	return c, nil
}

func (c *StoreConfig) check() error {
	u, err := url.Parse(c.Endpoint)
	switch {
	case c.Endpoint == "" || c.Bucket == "":
		return errors.New("endpoint and bucket are both required")
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.Fragment != "":
		return errors.New("endpoint is not a URL")
	case u.User != nil:
		return errors.New("endpoint contains a credential: use access_key_ref and secret_key_ref")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return errors.New("endpoint must be https://, because models read its content")
	case strings.ContainsAny(c.Bucket, "/\\?#% ") || c.Bucket == "." || c.Bucket == "..":
		return errors.New("bucket is not the name of a bucket")
	case c.Region == "" || strings.ContainsAny(c.Region, "/, "):
		return errors.New("region is not the name of a region")
	case !strings.HasPrefix(c.AccessKey, refPrefix) || !strings.HasPrefix(c.SecretKey, refPrefix):
		return fmt.Errorf("access_key_ref and secret_key_ref must start with %q", refPrefix)
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Host is the host that gets the credentials.
func (c *StoreConfig) Host() string {
	u, err := url.Parse(c.Endpoint)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// Credential returns the value of a credential by its ref. variable is the environment
// variable that other programs use for it.
type Credential func(ref, variable string) (string, error)

// Store is a bundle in a bucket: the objects whose keys start with its key.
type Store struct {
	key    string
	client *s3
}

var _ Files = (*Store)(nil)

// Open returns the bundle of a key.
func (c *StoreConfig) Open(key string, find Credential) (*Store, error) {
	access, err := find(c.AccessKey, "AWS_ACCESS_KEY_ID")
	if err != nil {
		return nil, err
	}
	secret, err := find(c.SecretKey, "AWS_SECRET_ACCESS_KEY")
	if err != nil {
		return nil, err
	}
	client, err := newS3(c, func() (string, string) { return access, secret })
	if err != nil {
		return nil, err
	}
	return &Store{key: strings.Trim(key, "/"), client: client}, nil
}

// Name is the bucket and the key.
func (s *Store) Name() string { return s.client.bucket + "/" + s.key }

// List lists the objects below the key.
func (s *Store) List(ctx context.Context) ([]File, error) {
	objects, err := s.client.list(ctx, s.key+"/")
	if err != nil {
		return nil, err
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("%w: nothing in %s starts with %s/", ErrNoBundle, s.client.bucket, s.key)
	}
	files := make([]File, 0, len(objects))
	for _, o := range objects {
		name, below := strings.CutPrefix(o.Key, s.key+"/")
		if strings.HasSuffix(o.Key, "/") && o.Size == 0 && below && (name == "" || fs.ValidPath(strings.TrimSuffix(name, "/"))) {
			continue // a placeholder that some programs store for a folder
		}
		f := File{Path: name, Size: o.Size}
		if !below || !fs.ValidPath(name) || strings.ContainsAny(name, "\\\x00") || diag.Hidden(name) != "" {
			f.Path, f.Refused = cmp.Or(name, o.Key), "its name leaves the bundle, or is not a path"
		}
		files = append(files, f)
	}
	return files, nil
}

// Read gets an object.
func (s *Store) Read(ctx context.Context, name string) ([]byte, error) {
	return s.client.get(ctx, s.key+"/"+name)
}

// Covered reports whether a credential for these hosts may be sent to the store.
func (c *StoreConfig) Covered(hosts []string) bool {
	return len(hosts) == 0 || agent.Covers(hosts, c.Host())
}
