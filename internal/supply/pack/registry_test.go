package pack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// scope is the npm scope of the packages in the test registry. TestMain configures npm to use the test
// registry for this scope. All other packages come from npm's usual registry.
const scope = "@ambit-test"

var registry = &npmRegistry{packages: map[string]map[string]npmVersion{}}

func TestMain(m *testing.M) {
	if os.Getenv("AMBIT_PACK_HELPER") != "" {
		os.Exit(helper())
	}
	server := httptest.NewServer(registry)
	registry.url = server.URL
	os.Setenv("npm_config_"+scope+":registry", server.URL+"/")
	os.Setenv("npm_config_noproxy", "127.0.0.1")
	os.Setenv("AMBIT_TEST_SECRET", "not for install scripts")
	goleak.VerifyTestMain(shutting{m, server})
}

// shutting runs the tests and then stops the test registry.
type shutting struct {
	*testing.M
	server *httptest.Server
}

func (s shutting) Run() int {
	defer s.server.Close()
	return s.M.Run()
}

// npmRegistry is an npm registry with only the functions that the tests need.
type npmRegistry struct {
	url      string
	mu       sync.Mutex
	packages map[string]map[string]npmVersion
}

type npmVersion struct {
	manifest map[string]any
	tarball  []byte
}

// publish publishes a package with the given package.json and files. It returns the digest of the
// tarball.
func (r *npmRegistry) publish(manifest map[string]any, files map[string]string) (digest string) {
	name, version := manifest["name"].(string), manifest["version"].(string)
	self, _ := json.Marshal(manifest)
	all := map[string]string{"package/package.json": string(self)}
	for file, text := range files {
		all["package/"+file] = text
	}
	tarball := archive(all)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.packages[name] == nil {
		r.packages[name] = map[string]npmVersion{}
	}
	r.packages[name][version] = npmVersion{manifest, tarball}
	return digestOf(tarball)
}

// archive returns a gzipped tar archive of files.
func archive(files map[string]string) []byte {
	var buf bytes.Buffer
	zip := gzip.NewWriter(&buf)
	w := tar.NewWriter(zip)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		_ = w.WriteHeader(&tar.Header{Name: file, Mode: 0o644, Size: int64(len(files[file]))})
		_, _ = w.Write([]byte(files[file]))
	}
	_ = w.Close()
	_ = zip.Close()
	return buf.Bytes()
}

func (r *npmRegistry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name, version, tarball := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/-/")
	versions := r.packages[name]
	if versions == nil {
		http.Error(w, `{"error":"Not found"}`, http.StatusNotFound)
		return
	}
	if tarball {
		_, _ = w.Write(versions[strings.TrimSuffix(version, ".tgz")].tarball)
		return
	}
	all := map[string]any{}
	for v, p := range versions {
		m := maps.Clone(p.manifest)
		sum, short := sha512.Sum512(p.tarball), sha1.Sum(p.tarball)
		m["dist"] = map[string]any{
			"tarball":   fmt.Sprintf("%s/%s/-/%s.tgz", r.url, name, v),
			"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]), "shasum": hex.EncodeToString(short[:]),
		}
		all[v] = m
	}
	latest := slices.Max(slices.Collect(maps.Keys(versions)))
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"name": name, "dist-tags": map[string]string{"latest": latest}, "versions": all})
}
