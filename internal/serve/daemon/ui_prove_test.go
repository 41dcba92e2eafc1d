//go:build prove

package daemon

import (
	"context"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/manifest"
)

// hostile is a script that tries to break out of the sandbox. To report its successes, it requests an
// image whose name lists them.
const hostile = `
const worked = [];
const attempt = async (name, f) => { try { await f(); worked.push(name); } catch {} };
(async () => {
  await attempt('api', async () => { const r = await fetch('/api/v1/whoami'); if (r.status === 0) throw 0; });
  await attempt('pages', () => fetch('app.js'));
  await attempt('parent', () => { if (!parent.document.body) throw 0; if (parent === window) throw 0; });
  await attempt('storage', () => localStorage.setItem('a', 'b'));
  await attempt('cookie', () => { document.cookie = 'a=b'; if (!document.cookie) throw 0; });
  await attempt('origin', () => { if (self.origin === 'null') throw 0; });
  await attempt('inline', () => { const s = document.createElement('script'); s.textContent = 'window.inlined = 1'; document.body.append(s); if (!window.inlined) throw 0; });
  await attempt('eval', () => eval('1'));
  await attempt('top', () => { if (top === window) throw 0; top.location = 'about:blank'; });
  await attempt('popup', () => { if (!open('about:blank')) throw 0; });
  await attempt('peer', async () => {
    const peer = new RTCPeerConnection({ iceServers: [{ urls: 'stun:SINK' }] });
    peer.createDataChannel('x');
    const gathered = new Promise((done) => { peer.onicegatheringstatechange = () => peer.iceGatheringState === 'complete' && done(); });
    await peer.setLocalDescription();
    await gathered;
    throw 0; // a packet that arrived has been reported
  });
  new Image().src = 'worked-' + (worked.join('+') || 'nothing') + '.png';
})();`

// reporting records the names of the images that the hostile script requests.
type reporting struct {
	fs.FS
	reports chan string
	scripts *atomic.Int64 // how often the hostile script was requested
}

func (h reporting) Open(name string) (fs.File, error) {
	if strings.HasPrefix(name, "worked-") {
		select {
		case h.reports <- name:
		default:
		}
	}
	if name == "app.js" {
		h.scripts.Add(1)
	}
	return h.FS.Open(name)
}

// A hostile page in a frame cannot break out of its sandbox. Outside a frame, the page is not shown.
func TestUIInABrowser(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	sink, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	script := strings.ReplaceAll(hostile, "SINK", sink.LocalAddr().String())
	pages := reporting{fstest.MapFS{
		"index.html": {Data: []byte(`<!doctype html><body><script src="app.js"></script>`)}, "app.js": {Data: []byte(script)},
	}, make(chan string, 10), new(atomic.Int64)}
	go func() {
		for {
			if _, _, err := sink.ReadFrom(make([]byte, 2000)); err != nil {
				return
			}
			_, _ = pages.Open("worked-webrtc") // reports the packet
		}
	}()
	keys, err := identity.OpenKeys(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, map[string]string{"pages.json": matrix("pages")}, func(_ *rig, o *Options) {
		o.Tickets = keys
		start := o.Start
		o.Start = func(ctx context.Context, name string, m *manifest.Manifest) Running {
			return paged{start(ctx, name, m).(*fake), pages}
		}
	})
	ticket := func(purpose string) string {
		return base64.RawURLEncoding.EncodeToString(keys.Seal(purpose, fmt.Appendf(nil, `{"agent":"pages","until":%d}`, time.Now().Add(uiTime).Unix())))
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	for _, path := range []string{ticket(forFrame), ticket(forPages) + "/index.html"} {
		if _, err := chromedp.Run(ctx, chromedp.Navigate(r.server.URL+"/ui/"+path)); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, ".html") {
			if n := pages.scripts.Load(); n != 1 {
				t.Errorf("the page was shown outside a frame: its script was requested %d times", n)
			}
			continue
		}
		select {
		case got := <-pages.reports:
			if got != "worked-nothing.png" {
				t.Errorf("%q: %s", path, got)
			}
		case <-ctx.Done():
			t.Fatalf("%q: the page's own script did not run", path)
		}
	}
}
