package cli

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/exec/signin"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
)

func (s *serverLogin) daemonFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.daemon, "url", "", "the `URL` of the daemon that serves the agent")
	cmd.Flags().StringVar(&s.keyFile, "key-file", "",
		"the `file` with your API key for the daemon at --url (default: the token of ambit login for this address)")
}

// where returns the flag that names the daemon, followed by a space. It returns "" without a daemon.
func (s *serverLogin) where() string {
	if s.daemon == "" {
		return ""
	}
	return "--url " + diag.ShellWord(s.daemon) + " "
}

// daemonAt returns a client for the daemon that the flags name.
func (t *terminal) daemonAt(ctx context.Context, asked serverLogin) (*daemon.Client, error) {
	var key string
	if asked.keyFile != "" {
		text, err := os.ReadFile(asked.keyFile)
		if err != nil {
			return nil, missing("", "the key cannot be read: %w", err)
		}
		key = strings.TrimSpace(string(text))
	} else {
		token, found, err := keeper(t.home).Token(ctx, asked.daemon)
		if err != nil {
			return nil, signInFailure(err)
		}
		if !found {
			return nil, usage("write your API key to a file that only you can read, and add: --key-file FILE",
				"there is no key for the daemon at %s", diag.Quote(asked.daemon))
		}
		key = token
	}
	if key == "" {
		return nil, usage("write your API key into the file", "the file %s is empty", diag.Quote(asked.keyFile))
	}
	d, err := daemon.NewClient(asked.daemon, key)
	if err != nil {
		return nil, usage("use the https address of the daemon", "--url %s: %w", diag.Quote(asked.daemon), err)
	}
	return d, nil
}

// loginDaemon signs the user in to a remote tool server of an agent on a daemon. The daemon keeps the tokens.
func (t *terminal) loginDaemon(ctx context.Context, asked serverLogin) error {
	d, err := t.daemonAt(ctx, asked)
	if err != nil {
		return err
	}
	browser := t.browser(asked.noBrowser)
	defer browser.Close()
	redirect, err := browser.Redirect(ctx, 0)
	if err != nil {
		return missing("", "%w", err)
	}
	var begun signin.Begun
	err = d.Send(ctx, http.MethodPost, "/api/v1/signins", map[string]any{
		"agent": asked.agent, "server": asked.server, "redirect_uri": redirect, "scopes": asked.scopes,
	}, &begun)
	if err != nil {
		return daemonRefusal(asked.daemon, err)
	}
	page, err := url.Parse(begun.Page)
	if err != nil || page.Scheme != "https" && page.Scheme != "http" {
		return missing("", "the daemon sent an address that is not a web page")
	}
	answer, err := browser.Visit(ctx, begun.Page, begun.State)
	if err != nil {
		return signInProblem(ctx, asked.server, err)
	}
	var g signin.Grant
	doc := map[string]string{"answer": answer.Encode()}
	if err := d.Send(ctx, http.MethodPost, "/api/v1/signins/complete", doc, &g); err != nil {
		return daemonRefusal(asked.daemon, err)
	}
	return t.show(map[string]any{"sign_in": g}, func() { t.printSignedIn(g, "") })
}

// listDaemon asks a daemon for the user's sign-ins to remote tool servers.
func (t *terminal) listDaemon(ctx context.Context, asked serverLogin) ([]signin.Grant, error) {
	d, err := t.daemonAt(ctx, asked)
	if err != nil {
		return nil, err
	}
	var list struct {
		SignIns []signin.Grant `json:"sign_ins"`
	}
	if err := d.Do(ctx, http.MethodGet, "/api/v1/signins", &list); err != nil {
		return nil, daemonRefusal(asked.daemon, err)
	}
	return list.SignIns, nil
}

// logoutDaemon signs the user out of a remote tool server of an agent on a daemon.
func (t *terminal) logoutDaemon(ctx context.Context, asked serverLogin) error {
	d, err := t.daemonAt(ctx, asked)
	if err != nil {
		return err
	}
	var done struct {
		Removed bool `json:"removed"`
		Revoked bool `json:"revoked"`
	}
	path := "/api/v1/signins/" + url.PathEscape(asked.agent) + "/" + url.PathEscape(asked.server)
	if err := d.Do(ctx, http.MethodDelete, path, &done); err != nil {
		return daemonRefusal(asked.daemon, err)
	}
	if !done.Revoked {
		t.warnf("the tokens are removed from the daemon, but stay valid until they expire")
	}
	doc := map[string]any{"agent": asked.agent, "server": asked.server, "removed": done.Removed, "revoked": done.Revoked}
	return t.say(doc, "%s of server %s of %s\n", t.paint(green, "signed out"), diag.Printable(asked.server),
		diag.Printable(asked.agent))
}

// daemonRefusal converts the error of a failed daemon request to a failure.
func daemonRefusal(address string, err error) error {
	if e, ok := errors.AsType[*daemon.APIError](err); ok {
		return no(e.Hint, "%w", e)
	}
	if errors.Is(err, daemon.ErrNoDaemon) {
		return missing("check the address, and that the daemon runs", "no daemon answers at %s", diag.Quote(address))
	}
	return missing("", "%w", err)
}
