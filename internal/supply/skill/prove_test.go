//go:build prove

package skill

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// gatewayProgram is an S3 server that is used in production. It checks more than the small server in the
// quick tests.
const gatewayProgram = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"

func TestProveGateway(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, "go", "install", gatewayProgram)
	install.Dir, install.Env = dir, append(os.Environ(), "GOBIN="+dir, "GOFLAGS=")
	if out, err := install.CombinedOutput(); err != nil {
		lacks(t, "the gateway cannot be built: %v\n%s", err, out)
	}
	data := filepath.Join(dir, "data")
	if err := os.MkdirAll(filepath.Join(data, "skills"), 0o700); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	gateway := exec.CommandContext(t.Context(), filepath.Join(dir, "versitygw"), "--port", address, "--quiet", "posix", data)
	gateway.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+accessKey, "ROOT_SECRET_KEY="+secretKey)
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = gateway.Process.Kill()
		_ = gateway.Wait()
	})
	endpoint := "http://" + address
	for deadline := time.Now().Add(30 * time.Second); ; {
		resp, err := http.Get(endpoint)
		if err == nil {
			resp.Body.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the gateway does not answer: %v", err)
		}
		time.Sleep(50 * time.Millisecond) // between polls
	}
	storeOnS3(t, endpoint)
}
