package signin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	callback = "/callback"
	// visitTime is how long a person has to sign in.
	visitTime = 10 * time.Minute
)

// Loopback is a [Browser] that waits for the answer on a loopback port (RFC 8252). The listener accepts only one
// request, which must contain the right state. It responds with fixed pages, and never redirects.
type Loopback struct {
	// Show shows the address of the page to the person.
	Show func(ctx context.Context, page string) error
	// Paste waits until the person pastes the address to which the browser returned. Paste may be nil. If it returns
	// [io.EOF], only the browser can answer.
	Paste func(ctx context.Context) (string, error)

	listener net.Listener
}

// Redirect starts to listen. If the preferred port is not free, it uses another one.
func (l *Loopback) Redirect(ctx context.Context, port int) (string, error) {
	var config net.ListenConfig
	var err error
	l.Close()
	l.listener, err = config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil && port != 0 {
		l.listener, err = config.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		l.listener = nil
		return "", fmt.Errorf("cannot listen for the browser's answer: %w", err)
	}
	return "http://" + l.listener.Addr().String() + callback, nil
}

// Close stops listening.
func (l *Loopback) Close() {
	if l.listener != nil {
		l.listener.Close()
		l.listener = nil
	}
}

// Visit shows the page and waits for the answer.
func (l *Loopback) Visit(ctx context.Context, page, state string) (url.Values, error) {
	late := fmt.Errorf("the sign-in was not completed in the browser within %v", visitTime)
	ctx, cancel := context.WithTimeoutCause(ctx, visitTime, late)
	defer cancel()
	answers, failed := make(chan url.Values, 1), make(chan error, 1)
	listener := l.listener
	server := &http.Server{
		Handler:           &returnPage{host: listener.Addr().String(), state: state, answers: answers},
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: 10 * time.Second, MaxHeaderBytes: 32 << 10,
	}
	go func() { _ = server.Serve(listener) }() // Serve returns when the server is closed
	defer func() {
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if server.Shutdown(leaving) != nil {
			server.Close()
		}
		l.Close() // close the listener if the server has not started to serve
	}()
	if err := l.Show(ctx, page); err != nil {
		return nil, err
	}
	if l.Paste != nil {
		go func() {
			answer, err := l.pasted(ctx)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				failed <- err
				return
			}
			select {
			case answers <- answer:
			default: // the answer came through the browser first
			}
		}()
	}
	select {
	case answer := <-answers:
		return answer, nil
	case err := <-failed:
		return nil, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// pasted returns the answer in the address that the person pasted.
func (l *Loopback) pasted(ctx context.Context) (url.Values, error) {
	text, err := l.Paste(ctx)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(text)
	if err != nil || u.Query().Get("state") == "" {
		// The address contains the code, so do not quote it.
		return nil, errors.New("the pasted text is not the address to which the browser returned; that address begins with " +
			`http://127.0.0.1 and contains "code=" and "state="`)
	}
	return u.Query(), nil
}

// returnPage is the page to which the browser returns.
type returnPage struct {
	host, state string
	answers     chan<- url.Values
}

func (p *returnPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	query := r.URL.Query()
	switch {
	case r.Host != p.host: // the Host header is another name that resolves to this machine, as in a DNS rebinding attack
		w.WriteHeader(http.StatusMisdirectedRequest)
	case r.Method != http.MethodGet:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case r.URL.Path != callback:
		w.WriteHeader(http.StatusNotFound)
	case !sameState(query.Get("state"), p.state):
		// Keep waiting, so that another web page cannot end the sign-in with a wrong answer.
		w.WriteHeader(http.StatusBadRequest)
	default:
		select {
		case p.answers <- query:
			const page = "<!doctype html><title>ambit</title><p>ambit has received the answer. You can close this page.</p>"
			_, _ = w.Write([]byte(page)) // the browser may have closed the connection
		default:
			w.WriteHeader(http.StatusGone)
		}
	}
}

// portOf returns the port of a loopback address, or 0.
func portOf(redirect string) int {
	u, err := url.Parse(redirect)
	if err != nil {
		return 0
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		return 0
	}
	return int(port)
}
