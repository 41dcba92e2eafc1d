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

// Refuse returns the reason why the client can never use the agent, and a hint about what to do instead. Both results
// are empty if the client can use the agent. A client uses "ambit run NAME" to reach an agent that is hosted at a URL.
func (c *Client) Refuse(a *agent.Agent) (reason, hint string) {
	remote := slices.Contains(a.Delivery.Modes, "mcp.remote") && a.Delivery.URL != ""
	switch {
	case c.Name == Web && !remote && !slices.Contains(a.Delivery.Modes, "prompt"):
		return "the agent runs on this machine, but a web client can only connect to a URL",
			"run \"ambit serve\" on a machine that the client can reach, and connect the client to URL/mcp/NAME"
	case c.Name == Web || a.Delivery.Exec != agent.HostedExec || a.Hosted():
		return "", ""
	}
	return "the agent is hosted, so it runs only on a server, but " + c.Title + " starts agents on this machine",
		"install the agent on the machine where \"ambit serve\" runs, and connect the client to URL/mcp/NAME"
}

// Meant reports whether the agent is meant for this client. This is the case if the manifest lists this client or lists
// no clients at all.
func (c *Client) Meant(a *agent.Agent) bool {
	return len(a.Delivery.Targets) == 0 || slices.Contains(a.Delivery.Targets, c.Name)
}

// Steps returns the steps for connecting a web client by hand. It returns nil for other clients.
func (c *Client) Steps(a *agent.Agent) []string {
	switch {
	case c.Name != Web:
		return nil
	case a.Delivery.URL == "":
		return []string{"paste the agent's prompt into the client"}
	}
	steps := []string{"open the client's settings and add a custom connector", "enter the URL " + a.Delivery.URL}
	switch a.Delivery.Auth {
	case "api-key":
		steps = append(steps, "enter your API key when the client asks for it; ambit does not store the key")
	case "oauth-device":
		steps = append(steps, "sign in when the client asks")
	}
	return steps
}

// Link returns a URL that opens the client and installs the entry. It returns "" if the client does not support such
// URLs.
func (c *Client) Link(key string, e Entry) string {
	one := style{oneLine: true}
	switch c.Name {
	case "cursor":
		config := base64.StdEncoding.EncodeToString([]byte(jsonFile{shape: usual}.render(e, one, "")))
		return "cursor://anysphere.cursor-deeplink/mcp/install?name=" + url.QueryEscape(key) +
			"&config=" + url.QueryEscape(config)
	case "vscode":
		entry := jsonFile{shape: typed}.render(e, one, "")
		return "vscode:mcp/install?" + url.PathEscape(`{"name":`+quote(key)+","+strings.TrimPrefix(entry, "{"))
	}
	return ""
}

var versionIn = regexp.MustCompile(`\d+(\.\d+){1,2}`)

// Installed returns the version that the client's program reports, or "" if the version is unknown.
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

// Unmet returns a message if the client's version does not match the compatibility hints in the manifest. It also
// returns a message if the version is unknown or cannot be compared.
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
			return fmt.Sprintf("the agent requires %s %s, but the installed version could not be checked", family, required)
		case !constraint.Check(have):
			return fmt.Sprintf("the agent requires %s %s, but the installed version of %s is %s",
				family, required, c.Title, version)
		}
	}
	return ""
}
