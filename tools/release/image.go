package main

import (
	"bytes"
	"encoding/pem"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageUser is the id of the user who runs ambit in the image. deploy/container/Containerfile has the same user.
const imageUser = 10001

// rootTerms contains the licence terms of the root certificates in the image.
const rootTerms = `The root certificates are Mozilla's, from the Go module golang.org/x/crypto/x509roots/fallback.
Mozilla's list of root certificates is under the Mozilla Public License 2.0: https://mozilla.org/MPL/2.0/
`

// image returns a tar archive of an OCI image layout, with one image for each binary. An image contains ambit and the
// root certificates, but no shell and no bubblewrap. It can run agents whose tools are HTTP requests, prompts or
// remote servers. For local tool servers and programs, use the recipe in deploy/container.
func (c *contents) image(binaries []binary) ([]byte, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range binaries {
		img, err := c.imageFor(b)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: b.system, Architecture: b.arch}},
		})
	}
	dir, err := os.MkdirTemp("", "ambit-image-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return nil, err
	}
	name := map[string]string{"org.opencontainers.image.ref.name": c.version}
	if err := to.AppendIndex(index, layout.WithAnnotations(name)); err != nil {
		return nil, err
	}
	var entries []entry
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		entries = append(entries, file(filepath.ToSlash(name), text))
		return err
	})
	if err != nil {
		return nil, err
	}
	return tarOf(entries, c.made)
}

// imageFor returns the image for one architecture.
func (c *contents) imageFor(b binary) (v1.Image, error) {
	text, err := tarOf([]entry{
		program("usr/bin/ambit", b.body),
		file("usr/share/doc/ambit/LICENSES.txt", c.licences),
		file("usr/share/doc/ca-certificates/copyright", []byte(rootTerms)),
		file("etc/ssl/certs/ca-certificates.crt", rootCertificates()),
		file("etc/passwd", []byte("root:x:0:0:root:/:/none\nambit:x:10001:10001:ambit:/var/lib/ambit:/none\n")),
		file("etc/group", []byte("root:x:0:\nambit:x:10001:\n")),
		{name: "tmp", dir: true, mode: 0o1777},
		{name: "var/lib/ambit", dir: true, mode: 0o700, owner: imageUser},
		{name: "var/lib/ambit-work", dir: true, mode: 0o700, owner: imageUser},
	}, c.made)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	created := v1.Time{Time: c.made}
	img, err = mutate.Append(img, mutate.Addendum{
		Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: created, CreatedBy: "make release"},
	})
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = b.system, b.arch, created
	config.Config = v1.Config{
		User: "10001:10001", WorkingDir: "/var/lib/ambit", StopSignal: "SIGTERM",
		Env:          []string{"PATH=/usr/bin", "HOME=/var/lib/ambit", "AMBIT_HOME=/var/lib/ambit"},
		ExposedPorts: map[string]struct{}{"7411/tcp": {}},
		Entrypoint:   []string{"/usr/bin/ambit"},
		Cmd:          []string{"serve", "--listen", "0.0.0.0:7411", "--behind-proxy", "--production"},
		Labels: map[string]string{
			"org.opencontainers.image.title": "ambit", "org.opencontainers.image.version": c.version,
			"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.source": home,
		},
	}
	return mutate.ConfigFile(img, config)
}

// rootCertificates returns the root certificates for TLS servers. It leaves out roots with a constraint, because a
// PEM file cannot express the constraint.
func rootCertificates() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			// Writing to a buffer never fails.
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return out.Bytes()
}
