package client

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/ambit-run/ambit/agent"
)

// Hosted agents run only on a server.
const hosted = "findagent-hosted"

// Refuse says why the client can never reach the agent, and what to do; empty
// if it can.
func (c *Client) Refuse(a *agent.Agent) (reason, hint string) {
	remote := slices.Contains(a.Delivery.Modes, "mcp.remote") && a.Delivery.URL != ""
	switch {
	case c.Name == Web && !remote && !slices.Contains(a.Delivery.Modes, "prompt"):
		return "it runs on this machine, and a web client can only connect to an address", "serve it where the client can reach it, with ambit serve, and connect to URL/mcp/NAME there"
	case c.Name == Web || a.Delivery.Exec != hosted:
		return "", ""
	}
	hint = "install it where ambit serve runs, and connect to URL/mcp/NAME there"
	if remote {
		hint = "connect the client to " + a.Delivery.URL
	}
	return "it is hosted: it runs only on a server, and " + c.Title + " would have to start it here", hint
}

// Meant reports whether the agent's manifest names the client, or names none.
func (c *Client) Meant(a *agent.Agent) bool {
	return len(a.Delivery.Targets) == 0 || slices.Contains(a.Delivery.Targets, c.Name)
}

// Steps are what a person does where there is no file to write.
func (c *Client) Steps(a *agent.Agent) []string {
	switch {
	case c.Name != Web:
		return nil
	case a.Delivery.URL == "":
		return []string{"it is a recipe: paste its prompt into the client"}
	}
	steps := []string{"open the client's settings and add a custom connector", "give it the address " + a.Delivery.URL}
	switch a.Delivery.Auth {
	case "api-key":
		steps = append(steps, "give the connector your API key when it asks; it is not kept here")
	case "oauth-device":
		steps = append(steps, "sign in when it asks")
	}
	return steps
}

// Link is an address that opens the client and installs the entry; empty if
// the client knows none.
func (c *Client) Link(key string, e Entry) string {
	one := style{oneLine: true}
	switch c.Name {
	case "cursor":
		config := jsonFile{}.render(e, one, "")
		return "cursor://anysphere.cursor-deeplink/mcp/install?name=" + url.QueryEscape(key) + "&config=" + url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(config)))
	case "vscode":
		entry := jsonFile{typed: true}.render(e, one, "")
		return "vscode:mcp/install?" + url.PathEscape(`{"name":`+quoted(key)+","+strings.TrimPrefix(entry, "{"))
	}
	return ""
}

var versionIn = regexp.MustCompile(`\d+(\.\d+){1,2}`)

// Installed asks the client's own program for its version; empty if it cannot
// be told.
func (c *Client) Installed(ctx context.Context) string {
	if c.Binary == "" {
		return ""
	}
	path, err := exec.LookPath(c.Binary)
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return versionIn.FindString(string(out))
}

// Unmet compares the hints of a manifest with a client's version, empty where
// it is not known, and says what does not fit.
func (c *Client) Unmet(a *agent.Agent, version string) string {
	for _, family := range slices.Sorted(maps.Keys(a.Compatibility)) {
		if !strings.EqualFold(family, c.Family) && !strings.EqualFold(family, c.Name) {
			continue
		}
		wants := a.Compatibility[family]
		constraint, err := semver.NewConstraint(wants)
		have, versionErr := semver.NewVersion(cmp.Or(version, "?"))
		switch {
		case err != nil || versionErr != nil:
			return fmt.Sprintf("it asks for %s %s, and that was not checked", family, wants)
		case !constraint.Check(have):
			return fmt.Sprintf("it asks for %s %s, and %s here is %s", family, wants, c.Title, version)
		}
	}
	return ""
}
