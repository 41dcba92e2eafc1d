package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/pack"
	"github.com/ambit-run/ambit/internal/toolserver"
	"github.com/ambit-run/ambit/manifest"
	"github.com/ambit-run/ambit/manifest/diag"
)

func newVerify(t *terminal) *cobra.Command {
	var offline bool
	cmd := &cobra.Command{
		Use:     "verify PATH",
		GroupID: groupRun,
		Short:   "Prove that the world matches a manifest",
		Long: "Prove that the world matches a manifest: start its tool servers, compare what they advertise with what is\n" +
			"declared, and the packages with their digests. With a lock beside the manifest, whole definitions are\n" +
			"compared. Exits 1 and names every difference if anything is not as declared.",
		Example: "  ambit verify agents/default.json\n  ambit verify --offline agents/default.json",
		Args:    exactly(1, "one manifest"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := t.load(args[0], "")
			if err != nil {
				return err
			}
			if err := onServers(m); err != nil {
				return err
			}
			if offline {
				return t.verifyOffline(m)
			}
			return t.verify(cmd.Context(), m)
		},
	}
	cmd.Flags().BoolVar(&offline, "offline", false, "check only the file; start nothing")
	return cmd
}

func (t *terminal) verifyOffline(m *manifest.Manifest) error {
	a := m.Agent()
	if t.json {
		return t.document(map[string]any{"ok": true, "offline": true, "servers": []any{}})
	}
	t.printf("%s %s: %s, %s; the file is valid, nothing was started\n", t.paint(green, "ok:"), diag.Printable(a.ID), count(len(a.Servers), "server"), count(len(a.Tools), "tool"))
	return nil
}

func (t *terminal) verify(ctx context.Context, m *manifest.Manifest) error {
	o, err := t.serverOptions(m)
	if err != nil {
		return err
	}
	servers := toolserver.Start(ctx, m.Agent(), o)
	defer servers.Close()
	proofs := servers.Proofs()
	if t.json {
		err = t.document(map[string]any{"ok": servers.Proven(), "locked": o.Lock != nil, "servers": proofReports(proofs)})
	} else {
		t.proofs(proofs)
	}
	if err == nil && !servers.Proven() {
		return errNo
	}
	return err
}

type proofReport struct {
	Alias         string                   `json:"alias"`
	OK            bool                     `json:"ok"`
	Error         string                   `json:"error"`
	Message       string                   `json:"message"`
	Missing       []string                 `json:"missing"`
	Unexpected    []string                 `json:"unexpected"`
	Changed       []pack.Difference        `json:"changed"`
	PackageDigest toolserver.PackageDigest `json:"package_digest"`
	Protocol      string                   `json:"protocol"`
	Contained     bool                     `json:"contained"`
	Warnings      []string                 `json:"warnings"`
}

func proofReports(proofs []toolserver.Proof) []proofReport {
	reports := make([]proofReport, len(proofs))
	for i, p := range proofs {
		r := proofReport{
			Alias: p.Alias, OK: p.OK, Missing: append([]string{}, p.Missing...), Unexpected: append([]string{}, p.Unexpected...),
			Changed: append([]pack.Difference{}, p.Changed...), PackageDigest: p.Package, Protocol: p.Protocol,
			Contained: p.Contained, Warnings: append([]string{}, p.Warnings...),
		}
		if p.Refusal != nil {
			r.Error, r.Message = string(p.Refusal.Code), p.Refusal.Message
		}
		reports[i] = r
	}
	return reports
}

func (t *terminal) proofs(proofs []toolserver.Proof) {
	bad := 0
	for _, p := range proofs {
		mark, verdict := t.paint(green, "✓"), count(len(p.Tools), "tool")+" as declared, package "+string(p.Package.Status)
		if !p.OK {
			bad++
			mark, verdict = t.paint(red, "✗"), string(p.Refusal.Code)
		}
		t.printf("%s %s  %s\n", mark, t.paint(bold, diag.Printable(p.Alias)), t.paint(dim, verdict))
		for _, name := range p.Missing {
			note := ""
			if now := p.Renamed[name]; now != "" {
				note = "; was it renamed to " + diag.Quote(now) + "?"
			}
			t.printf("    %s declared, but not advertised: %s%s\n", t.paint(red, "-"), diag.Quote(name), note)
		}
		for _, name := range p.Unexpected {
			t.printf("    %s advertised, but not declared: %s\n", t.paint(red, "+"), diag.Quote(name))
		}
		for _, d := range p.Changed {
			for _, c := range d.Changes {
				t.printf("    %s %s of %s changed\n", t.paint(red, "~"), diag.Printable(c.Field), diag.Quote(d.Tool))
				t.printf("      %s %s\n      %s %s\n", t.paint(red, "was"), clip(diag.Printable(c.Old), 4*t.width), t.paint(green, "is "), clip(diag.Printable(c.New), 4*t.width))
			}
		}
		if !p.OK && len(p.Missing)+len(p.Unexpected)+len(p.Changed) == 0 {
			t.printf("    %s\n", strings.TrimLeft(wrap(diag.Printable(p.Refusal.Message), "    ", t.width), " "))
		}
		if !p.OK && p.Refusal.Hint != "" {
			t.printf("    %s %s\n", t.paint(dim, "hint:"), p.Refusal.Hint)
		}
		for _, w := range p.Warnings {
			t.printf("    %s %s\n", t.paint(yellow, "!"), diag.Printable(w))
		}
	}
	if bad == 0 {
		t.printf("%s\n", t.paint(green, fmt.Sprintf("every server is what the manifest says (%d)", len(proofs))))
		return
	}
	t.printf("%s\n", t.paint(boldRed, count(bad, "server")+" of "+fmt.Sprint(len(proofs))+" refused"))
}
