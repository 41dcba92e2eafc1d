package skill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/gateway/egress"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
)

// StoreConfig is the [skills] table of config.toml. It describes the bucket that contains the skills of agents. The
// key in a manifest's skills_source is a path in this bucket. The server can be any server with the S3 API.
//
//	[skills]
//	endpoint = "https://ACCOUNT.r2.cloudflarestorage.com"
//	bucket = "skills"
//	region = "auto"                             # the default
//	access_key_ref = "skills:access_key"        # the default
//	secret_key_ref = "skills:secret_key"        # the default
//
// The last two fields contain the names of credentials, not the credentials themselves. To set a credential, run:
// ambit secret set ambit REF. The names must start with "skills:". A manifest cannot contain such a name, so no agent
// can get these credentials.
type StoreConfig struct {
	Endpoint  string `toml:"endpoint"`
	Bucket    string `toml:"bucket"`
	Region    string `toml:"region"`
	AccessKey string `toml:"access_key_ref"`
	SecretKey string `toml:"secret_key_ref"`
}

const refPrefix = "skills:"

// ReadStore reads the [skills] table of a file. It returns nil if the file or the table does not exist. Unknown keys
// are errors.
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
		return errors.New("\"endpoint\" and \"bucket\" are both required")
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.Fragment != "":
		return errors.New("\"endpoint\" is not a valid http or https URL")
	case u.User != nil:
		return errors.New("\"endpoint\" contains a credential: use access_key_ref and secret_key_ref instead")
	case u.Scheme == "http" && !egress.IsLoopback(u.Hostname()):
		return errors.New("\"endpoint\" must begin with https://; http:// is allowed only for loopback addresses")
	case strings.ContainsAny(c.Bucket, "/\\?#% ") || c.Bucket == "." || c.Bucket == "..":
		return errors.New("\"bucket\" is not a valid bucket name")
	case c.Region == "" || strings.ContainsAny(c.Region, "/, "):
		return errors.New("\"region\" is not a valid region name")
	case !strings.HasPrefix(c.AccessKey, refPrefix) || !strings.HasPrefix(c.SecretKey, refPrefix):
		return fmt.Errorf("access_key_ref and secret_key_ref must start with %q", refPrefix)
	}
	return nil
}

// Host returns the host to which the credentials are sent.
func (c *StoreConfig) Host() string {
	u, err := url.Parse(c.Endpoint)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// Credential returns the value of a credential. Its arguments are the name of the credential and the name of the
// environment variable from which other programs read it.
type Credential func(ref, variable string) (string, error)

// Store is a bundle in a bucket. It consists of the objects whose keys begin with the bundle's key.
type Store struct {
	key    string
	client *s3
}

var _ Files = (*Store)(nil)

// Open returns the bundle at key. It calls the given function for each credential of the store.
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

// Name returns the bucket and the key.
func (s *Store) Name() string { return s.client.bucket + "/" + s.key }

// List returns the objects below the key as files.
func (s *Store) List(ctx context.Context) ([]File, error) {
	objects, err := s.client.list(ctx, s.key+"/")
	if err != nil {
		return nil, err
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("%w: the bucket %s contains no object below %s/", ErrNoBundle, s.client.bucket, s.key)
	}
	files := make([]File, 0, len(objects))
	for _, o := range objects {
		name, below := strings.CutPrefix(o.Key, s.key+"/")
		if strings.HasSuffix(o.Key, "/") && o.Size == 0 && below &&
			(name == "" || fs.ValidPath(strings.TrimSuffix(name, "/"))) {
			continue // skip the empty objects that some programs store in place of a folder
		}
		f := File{Path: name, Size: o.Size}
		if !below || !fs.ValidPath(name) || strings.ContainsAny(name, "\\\x00") || diag.Hidden(name) != "" {
			f.Path, f.Refused = cmp.Or(name, o.Key), "the object's name is not a valid path inside the bundle"
		}
		files = append(files, f)
	}
	return files, nil
}

// Read returns the content of an object.
func (s *Store) Read(ctx context.Context, name string) ([]byte, error) {
	return s.client.get(ctx, s.key+"/"+name, nil, maxDocument)
}

// Covered reports whether a credential for the given hosts is allowed to be sent to the store. A credential without
// hosts is always allowed.
func (c *StoreConfig) Covered(hosts []string) bool {
	return len(hosts) == 0 || agent.Covers(hosts, c.Host())
}
