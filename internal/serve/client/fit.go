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

const hosted = "findagent-hosted" // runs only on a server

// Refuse returns why the client can never reach the agent, and what to do; empty if it can.
func (c *Client) Refuse(a *agent.Agent) (reason, hint string) {
	remote := slices.Contains(a.Delivery.Modes, "mcp.remote") && a.Delivery.URL != ""
	switch {
	case c.Name == Web && !remote && !slices.Contains(a.Delivery.Modes, "prompt"):
		return "the agent runs on this machine, and a web client can only connect to an address",
			"serve it with ambit serve where the client can reach it, and connect to URL/mcp/NAME there"
	case c.Name == Web || a.Delivery.Exec != hosted:
		return "", ""
	}
	hint = "install it where ambit serve runs, and connect to URL/mcp/NAME there"
	if remote {
		hint = "connect the client to " + a.Delivery.URL
	}
	return "the agent is hosted: it runs only on a server, and " + c.Title + " would have to start it here", hint
}

// Meant reports whether the agent's manifest names the client, or no client at all.
func (c *Client) Meant(a *agent.Agent) bool {
	return len(a.Delivery.Targets) == 0 || slices.Contains(a.Delivery.Targets, c.Name)
}

// Steps are the manual steps for a client without a file.
func (c *Client) Steps(a *agent.Agent) []string {
	switch {
	case c.Name != Web:
		return nil
	case a.Delivery.URL == "":
		return []string{"the agent is a recipe: paste its prompt into the client"}
	}
	steps := []string{"open the client's settings and add a custom connector", "enter the address " + a.Delivery.URL}
	switch a.Delivery.Auth {
	case "api-key":
		steps = append(steps, "enter your API key when the client asks; ambit does not store it")
	case "oauth-device":
		steps = append(steps, "sign in when the client asks")
	}
	return steps
}

// Link returns an address that opens the client and installs the entry; empty if the client has
// none.
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

// Installed returns the version that the client's own program reports, or nothing.
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

// Unmet compares the compatibility hints of a manifest with a client's version (empty if unknown),
// and returns what does not match.
func (c *Client) Unmet(a *agent.Agent, version string) string {
	for _, family := range slices.Sorted(maps.Keys(a.Compatibility)) {
		if !strings.EqualFold(family, c.Family) && !strings.EqualFold(family, c.Name) {
			continue
		}
		required := a.Compatibility[family]
		constraint, err := semver.NewConstraint(required)
		have, versionErr := semver.NewVersion(cmp.Or(version, "?"))
		switch {
		case err != nil || versionErr != nil:
			return fmt.Sprintf("the agent requires %s %s, which could not be checked", family, required)
		case !constraint.Check(have):
			return fmt.Sprintf("the agent requires %s %s, but the installed %s is %s", family, required, c.Title, version)
		}
	}
	return ""
}
