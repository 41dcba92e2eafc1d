//go:build prove

package secret_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
)

// maker makes random parts of records.
type maker struct{ *rand.Rand }

func (r maker) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.IntN(256))
	}
	return b
}

func (r maker) hex(n int) string    { return hex.EncodeToString(r.bytes(n / 2)) }
func (r maker) base64(n int) string { return base64.StdEncoding.EncodeToString(r.bytes(n)) }
func (r maker) name(n int) string {
	return r.from("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", n)
}
func (r maker) small(n int) string { return r.from("bcdfghjklmnpqrstvwxz2456789", n) }

func (r maker) from(alphabet string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(b)
}

func (r maker) uuid() string {
	return r.hex(8) + "-" + r.hex(4) + "-4" + r.hex(4)[1:] + "-a" + r.hex(4)[1:] + "-" + r.hex(12)
}

func (r maker) one(words string) string {
	list := strings.Fields(words)
	return list[r.IntN(len(list))]
}

func (r maker) word() string {
	return r.one("alpha report invoice backup photo token secret key index auth password session login api-key cookie signing")
}

func (r maker) time() string {
	return fmt.Sprintf("2026-0%d-%02dT%02d:%02d:%02dZ", 1+r.IntN(9), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60))
}

func (r maker) ip() string { return fmt.Sprintf("10.%d.%d.%d", r.IntN(256), r.IntN(256), r.IntN(256)) }

func (r maker) version() string {
	return fmt.Sprintf("%d.%d.%d", r.IntN(20), r.IntN(40), r.IntN(20))
}

// records returns generators of records that have hashes, identifiers and keys, but no secrets. They have the form of
// answers of well-known APIs, logs, lock files and manifests.
func records(random *rand.Rand) map[string]func() string {
	r := maker{random}
	f := fmt.Sprintf
	return map[string]func() string{
		"S3 listing": func() string {
			return f("<Contents><Key>%s/%s/%s.json</Key><ETag>&quot;%s&quot;</ETag><Size>%d</Size></Contents>", r.word(), r.hex(40), r.word(), r.hex(32), r.IntN(1e6))
		},
		"spans": func() string {
			return f(`{"traceId":"%s","spanId":"%s","name":"GET /%s/%d","attributes":[{"key":"http.request_id","value":{"stringValue":"%s"}}]}`, r.hex(32), r.hex(16), r.word(), r.IntN(1e6), r.uuid())
		},
		"audit events": func() string {
			return f(`{"eventID":"%s","eventName":"Get%s","requestParameters":{"keyId":"%s","bucketName":"%s-%d","clientToken":"%s"},"sharedEventID":"%s"}`, r.uuid(), r.word(), r.uuid(), r.word(), r.IntN(999), r.uuid(), r.uuid())
		},
		"hashes with a key": func() string { return f("key=%s idempotency_key: %s etag=%s", r.hex(40), r.uuid(), r.hex(64)) },
		"GitHub": func() string {
			return f(`{"sha":"%s","node_id":"C_kwDO%s","url":"https://api.host.test/repos/%s/commits/%s","parents":[{"sha":"%s"}],"author":{"avatar_url":"https://host.test/u/%d?v=4","gravatar_id":"%s"},"verification":{"verified":true,"reason":"valid","signature":null},"key_id":"%d","key":"%s"}`,
				r.hex(40), r.name(20), r.word(), r.hex(40), r.hex(40), r.IntN(1e7), r.hex(32), r.IntN(1e9), r.base64(32))
		},
		"Stripe": func() string {
			return f(`{"id":"ch_3%s","object":"charge","balance_transaction":"txn_3%s","payment_intent":"pi_3%s","payment_method":"pm_1%s","payment_method_details":{"card":{"brand":"visa","fingerprint":"%s","last4":"4242"}},"receipt_url":"https://host.test/receipts/payment/%s","request":{"id":"req_%s","idempotency_key":"%s"},"created":17%08d}`,
				r.name(23), r.name(23), r.name(23), r.name(23), r.name(16), r.name(40), r.name(14), r.uuid(), r.IntN(1e8))
		},
		"Kubernetes": func() string {
			pod := r.word() + "-" + r.small(9) + "-" + r.small(5)
			return f(`{"kind":"Pod","metadata":{"name":"%s","uid":"%s","resourceVersion":"%d","labels":{"pod-template-hash":"%s"},"annotations":{"checksum/secret":"%s"}},"spec":{"volumes":[{"name":"kube-api-access-%s","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}}]}},{"name":"tls","secret":{"secretName":"%s-tls-%s"}}],"containers":[{"image":"host.test/%s@sha256:%s","env":[{"name":"DB_PASSWORD","valueFrom":{"secretKeyRef":{"name":"db-%s","key":"password"}}}]}]},"status":{"containerStatuses":[{"containerID":"containerd://%s"}]}}`,
				pod, r.uuid(), r.IntN(1e9), r.small(9), r.hex(64), r.small(5), r.word(), r.small(5), r.word(), r.hex(64), r.small(5), r.hex(64))
		},
		"AWS": func() string {
			return f(`{"ReservationId":"r-0%s","Instances":[{"InstanceId":"i-0%s","KeyName":"%s-%s","ImageId":"ami-0%s","ClientToken":"%s","Arn":"arn:aws:iam::%012d:role/%s-%s","LaunchTime":"%s","KmsKeyId":"arn:aws:kms:eu-west-1:%012d:key/%s"}],"NextToken":"%s","LockToken":"%s"}`,
				r.hex(16), r.hex(16), r.word(), r.small(6), r.hex(16), r.uuid(), r.IntN(1e12), r.word(), r.name(12), r.time(), r.IntN(1e12), r.uuid(), r.base64(60), r.uuid())
		},
		"application log": func() string {
			return f("%s INFO [%s] %s cache_key=user:%d:%s session %s refreshed token for %s in %dms", r.time(), r.uuid(), r.word(), r.IntN(1e6), r.hex(16), r.uuid(), r.word(), r.IntN(500))
		},
		"JSON log": func() string {
			return f(`{"time":"%s","level":"warn","msg":"%s rejected","request_id":"%s","trace":"%s","key":"%s:%d","token_type":"bearer","auth_method":"%s","password_changed_at":"%s","duration_ms":%d}`, r.time(), r.word(), r.uuid(), r.hex(32), r.word(), r.IntN(1e9), r.one("oidc password api-key mtls"), r.time(), r.IntN(9999))
		},
		"web server log": func() string {
			return f(`%s - - [0%d/Mar/2026:10:%02d:%02d +0000] "GET /%s/%s.%s.js?v=%s&page=%d HTTP/1.1" 200 %d "https://host.test/%s?utm_source=%s&sort_key=%s" "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"`, r.ip(), 1+r.IntN(9), r.IntN(60), r.IntN(60), r.word(), r.word(), r.hex(20), r.hex(8), r.IntN(90), r.IntN(1e6), r.word(), r.word(), r.word())
		},
		"system log": func() string {
			return f("Mar %2d 10:%02d:%02d host %s[%d]: %s; boot %s, unit session-%d.scope, invocation %s, pam_unix(sshd:auth): authentication failure for %s from %s port %d, key SHA256:%s", 1+r.IntN(28), r.IntN(60), r.IntN(60), r.one("systemd sshd kernel cron dockerd"), r.IntN(1e5), r.word(), r.hex(32), r.IntN(99), r.hex(32), r.word(), r.ip(), r.IntN(65536), strings.TrimRight(r.base64(32), "="))
		},
		"package log": func() string {
			name := r.one("libpam-runtime xauth libsecret-1-0 gnome-keyring python3-keyring passwd libkrb5 git-credential-oauth apt-key")
			return f("%s upgrade %s:amd64 %s-%d+deb12u%d %s-%d+deb12u%d\nUnpacking %s (%s-%d) over (1:%s~rc%d) ...\nGet:%d http://deb.host.test bookworm/main amd64 %s amd64 %s [%d kB]", r.time(), name, r.version(), r.IntN(9), r.IntN(9), r.version(), r.IntN(9), r.IntN(9), name, r.version(), r.IntN(9), r.version(), r.IntN(9), r.IntN(99), name, r.version(), r.IntN(9999))
		},
		"package-lock.json": func() string {
			name := r.one("jsonwebtoken js-tokens cookie csrf-tokens oauth-sign passport-local secret-stack keyv auth-header password-prompt")
			return f(`    "node_modules/%s": {"version": "%s", "resolved": "https://registry.host.test/%s/-/%s-%s.tgz", "integrity": "sha512-%s", "dependencies": {"%s": "^%s"}},`, name, r.version(), name, name, r.version(), r.base64(64), name, r.version())
		},
		"yarn.lock": func() string {
			name := r.one("js-tokens keyv @types/passport oauth4webapi cookie-signature")
			return f("\"%s@^%s\":\n  version \"%s\"\n  resolved \"https://registry.host.test/%s/-/%s-%s.tgz#%s\"\n  integrity sha512-%s\n", name, r.version(), r.version(), name, name, r.version(), r.hex(40), r.base64(64))
		},
		"Cargo.lock": func() string {
			return f("[[package]]\nname = \"%s\"\nversion = \"%s\"\nsource = \"registry+https://host.test/crates.io-index\"\nchecksum = \"%s\"\n", r.one("secrecy keyring oauth2 password-hash tokenizers"), r.version(), r.hex(64))
		},
		"go.sum": func() string {
			return f("golang.org/x/%s v%s h1:%s\ngithub.com/a/%s v0.0.0-20240102030405-%s/go.mod h1:%s", r.one("oauth2 crypto sync"), r.version(), r.base64(32), r.one("go-password jwt-token keyring"), r.hex(12), r.base64(32))
		},
		"CSV": func() string {
			return f("%d,%s,%s,%s,%s,\"%s %s\",%s,%d.%02d", r.IntN(1e6), r.uuid(), r.word(), r.hex(40), r.time(), r.word(), r.word(), r.name(12), r.IntN(999), r.IntN(100))
		},
		"YAML manifests": func() string {
			return f("---\napiVersion: v1\nkind: Deployment\nmetadata:\n  name: %s-%s\n  annotations:\n    checksum/secret: %s\nspec:\n  secretName: %s-credentials\n  image: host.test/%s:%s@sha256:%s\n  env:\n  - name: API_TOKEN\n    valueFrom:\n      secretKeyRef: {name: %s, key: api-token}\n  tokenRequest: {audience: %s, expirationSeconds: %d}", r.word(), r.small(5), r.hex(64), r.word(), r.word(), r.version(), r.hex(64), r.word(), r.word(), r.IntN(9999))
		},
		"HTML": func() string {
			return f(`<script src="/assets/%s-%s.js" integrity="sha384-%s" nonce="%s" crossorigin></script><a href="/video.ico-%s.png" id="token-%s" data-key="%s:%d"><label for="password">Password</label><input type="password" name="password" autocomplete="current-password">`, r.word(), r.name(8), r.base64(48), r.base64(16), r.hex(32), r.small(6), r.word(), r.IntN(1e6))
		},
		"Markdown": func() string {
			return f("## %s %s\n\nSet the `%s` in *Settings → %s*, or pass `--%s` (see [docs](https://host.test/%s#%s)).\n\n| name | type | default |\n|---|---|---|\n| `%s` | string | |\n\n![build](https://host.test/%s.svg?token=%s) Fixed in %s.\n", r.word(), r.version(), r.word(), r.word(), r.word(), r.word(), r.word(), r.word(), r.word(), r.name(10), r.hex(40))
		},
	}
}
