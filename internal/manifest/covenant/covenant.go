// Package covenant implements the Covenant dialect. A Covenant agent is a program that reads one line of JSON and
// writes one line of JSON. The manifest lists the actions for which a caller needs a grant, and limits the resources
// of the program.
//
// The manifest is TOML. The section [agent] identifies the agent and its program. The sections [capabilities],
// [resources] and [settlement] are optional, and so are their fields. Parse fills in the defaults. A Manifest
// therefore contains the effective values.
//
// Where the dialect leaves a choice, ambit decides as follows:
//
//   - The field runtime is required, like the other fields of [agent].
//   - An id without a host is a warning, because later releases of Covenant allow it.
//   - A version that is not SemVer is a warning, because SemVer is only recommended.
//   - An action consists of a reserved namespace and at least one name. "tool." alone is not an action.
//   - A required sandbox with the backend linux-gvisor means the tier strong. ambit always runs programs in a sandbox,
//     even if the manifest does not require one.
//   - Unknown sections are ignored, as the dialect requires. An unknown field in a known section is a warning,
//     because the field is usually a mistake.
package covenant

import "github.com/ambit-run/ambit/agent"

// Manifest is a Covenant agent manifest.
type Manifest struct {
	Agent        Agent        `toml:"agent"`
	Capabilities Capabilities `toml:"capabilities"`
	Resources    Resources    `toml:"resources"`
	Settlement   Settlement   `toml:"settlement"`
	Sandbox      *Sandbox     `toml:"sandbox,omitempty"`
}

// Agent identifies the agent and its program. Entry is the path of the program.
type Agent struct {
	ID      string `toml:"id"`
	Name    string `toml:"name"`
	Version string `toml:"version"`
	Runtime string `toml:"runtime"`
	Entry   string `toml:"entry"`
}

// Capabilities lists the actions for which callers of the agent need a grant.
type Capabilities struct {
	Required []string `toml:"required"`
	Optional []string `toml:"optional"`
}

// Resources limits the resources of one task.
type Resources struct {
	// CPUMsPerTask is wall-clock time, despite its name.
	CPUMsPerTask int64  `toml:"cpu_ms_per_task"`
	MemoryMB     int64  `toml:"memory_mb"`
	DiskMB       int64  `toml:"disk_mb"`
	Network      string `toml:"network"`
}

// Settlement limits the cost of the agent. A budget of 0 means no limit.
type Settlement struct {
	BudgetCreditsPerHour int64  `toml:"budget_credits_per_hour"`
	Priority             string `toml:"priority"`
}

// Sandbox describes the sandbox that the program needs.
type Sandbox struct {
	// Required means that the program must not run without the sandbox.
	Required   bool   `toml:"required"`
	Backend    string `toml:"backend,omitempty"`
	Filesystem string `toml:"filesystem,omitempty"`
}

// Keys lists the top-level keys that no other TOML dialect has.
var Keys = []string{"agent", "capabilities", "resources", "settlement"}

var namespaces = agent.ActionNamespaces

// The allowed values of enumerated fields.
var (
	runtimes   = []string{"rust-bin", "python3", "node"}
	networks   = []string{"off", "outbound-https-only", "full"}
	priorities = []string{"low", "normal", "high"}
	backends   = []string{trustedLocal, gVisor}
	filesystem = []string{"read-only-package", "ephemeral", hostFiles}
)

const (
	trustedLocal = "trusted-local"
	gVisor       = "linux-gvisor"
	hostFiles    = "host"
)

func defaultResources() Resources {
	return Resources{CPUMsPerTask: 30_000, MemoryMB: 512, DiskMB: 100, Network: "outbound-https-only"}
}

func defaultSettlement() Settlement { return Settlement{Priority: "normal"} }
