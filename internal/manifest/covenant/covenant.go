// Package covenant implements the Covenant dialect: agents that are programs, with the
// actions that their callers must be granted, a resource budget, and one line of JSON
// in and one out.
//
// The manifest is TOML. [agent] identifies the program and its entry. [capabilities],
// [resources] and [settlement] are optional, and so are their fields. Defaults are
// filled in when a manifest is parsed, so a Manifest contains the effective values.
//
// Where the dialect leaves a choice, ambit decides as follows. runtime is required,
// like the other fields of [agent]. An id without a host is accepted with a warning,
// since later releases use it. A version that is not SemVer is a warning, since SemVer
// is only recommended. An action is a reserved namespace and at least one name; tool.
// alone is not an action. Unknown sections are ignored, as the dialect promises. An
// unknown field in a known section is usually a mistake, so it is a warning.
package covenant

import "github.com/ambit-run/ambit/agent"

// Manifest is a Covenant agent manifest.
type Manifest struct {
	Agent        Agent        `toml:"agent"`
	Capabilities Capabilities `toml:"capabilities"`
	Resources    Resources    `toml:"resources"`
	Settlement   Settlement   `toml:"settlement"`
}

// Agent identifies the program and its entry.
type Agent struct {
	ID      string `toml:"id"`
	Name    string `toml:"name"`
	Version string `toml:"version"`
	Runtime string `toml:"runtime"`
	Entry   string `toml:"entry"`
}

// Capabilities are the actions that callers of the agent must be granted.
type Capabilities struct {
	Required []string `toml:"required"`
	Optional []string `toml:"optional"`
}

// Resources bound one task.
type Resources struct {
	// CPUMsPerTask is wall-clock time, despite its name.
	CPUMsPerTask int64  `toml:"cpu_ms_per_task"`
	MemoryMB     int64  `toml:"memory_mb"`
	DiskMB       int64  `toml:"disk_mb"`
	Network      string `toml:"network"`
}

// Settlement limits the agent's cost. A budget of 0 means none.
type Settlement struct {
	BudgetCreditsPerHour int64  `toml:"budget_credits_per_hour"`
	Priority             string `toml:"priority"`
}

// Keys are the top-level keys that only this dialect has, in TOML.
var Keys = []string{"agent", "capabilities", "resources", "settlement"}

// namespaces are the namespaces of actions.
var namespaces = agent.ActionNamespaces

// The allowed values of enumerated fields.
var (
	runtimes   = []string{"rust-bin", "python3", "node"}
	networks   = []string{"off", "outbound-https-only", "full"}
	priorities = []string{"low", "normal", "high"}
)

func defaultResources() Resources {
	return Resources{CPUMsPerTask: 30_000, MemoryMB: 512, DiskMB: 100, Network: "outbound-https-only"}
}

func defaultSettlement() Settlement { return Settlement{Priority: "normal"} }
