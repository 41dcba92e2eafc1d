package policy

import (
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
)

// A further forbid rule never allows a call that was refused before. How a rule reads an argument must not change what
// other rules see in it.
func TestFurtherForbidsAllowNothing(t *testing.T) {
	type base struct {
		dialect agent.Dialect
		rule    string
	}
	const forbid, permit = `forbid (principal, action, resource) `, `permit (principal, action, resource) `
	bases := []base{
		{agent.Matrix, forbid + `when { context.paths_any_under.contains("/etc") };`},
		{agent.Matrix, forbid + `when { context.hosts_any_under.contains("evil.example") };`},
		{agent.Matrix, forbid + `when { context.databases.contains("prod") };`},
		{agent.Matrix, forbid + `when { context.path_of has NAME && context.path_of.NAME.any_under.contains("/etc") };`},
		{agent.Matrix, forbid + `unless { context.paths_all_under.contains("/srv") };`},
		{agent.Matrix, forbid + `unless { context.hosts_all_under.contains("good.example") };`},
		{agent.GPARS, permit + `when { context.paths_all_under.contains("/srv") };`},
		{agent.GPARS, permit + `when { context.hosts_all_under.contains("good.example") };`},
	}
	var further []string
	for _, compared := range []string{
		`== "memo://hr"`, `== "https://a.example/x"`, `== "file:///srv/q"`, `== "/srv/x"`, `== "a.example"`, `== "word"`,
		`like "https://a.example/*"`, `like "*zzz"`, `.contains("https://b.example")`, `> 5`,
	} {
		further = append(further, forbid+`when { context.arguments has NAME && context.arguments.NAME `+compared+` };`)
	}
	further = append(further,
		forbid+`when { context.arguments has NAME && ["memo://x", "/q"].contains(context.arguments.NAME) };`,
		forbid+`when { context.path_of has NAME && context.path_of.NAME.any_under.contains("/never") };`,
		forbid+`when { context.hosts_any_under.contains("never.example") };`,
		forbid+`when { context.paths_any_under.contains("/never") };`,
		forbid+`when { context.databases.contains("never") };`)
	values := []string{
		`"file:///etc/passwd"`, `"/etc/passwd"`, `"fs://etc/passwd"`, `["file:///etc/passwd"]`, `{"a":"file:///etc/passwd"}`,
		`"file:/etc/passwd"`, `"file://evil.example/etc/x"`, `"jar:file:///etc/x!/y"`, `"sqlite:///etc/passwd"`,
		`"etc/passwd"`, `{"/etc/passwd":1}`, `"git+file:///etc/x"`, `"see file:///etc/passwd"`, `"//evil.example/etc"`,
		`"https://evil.example/x"`, `"evil.example"`, `["/etc/x","https://evil.example"]`, `"memo://evil.example/etc"`,
		`"postgres://h/prod"`, `"prod"`, `"host=x dbname=prod"`, `"https://good.example/x"`, `"/srv/a"`,
	}
	for _, name := range []string{"uri", "path", "host", "text", "database", "src"} {
		named := strings.NewReplacer("NAME", name)
		for _, b := range bases {
			for _, value := range values {
				rule, args := named.Replace(b.rule), `{"`+name+`": `+value+`}`
				if first(judgeOne(t, rule, b.dialect, args)) == "yes" {
					continue
				}
				for _, f := range further {
					if f = named.Replace(f); first(judgeOne(t, rule+f, b.dialect, args)) == "yes" {
						t.Errorf("%s is refused by\n%s\nand allowed after the addition of\n%s", args, rule, f)
					}
				}
			}
		}
	}
}
