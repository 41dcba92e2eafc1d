//go:build unix

package toolserver

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// If this variable is set, the test binary runs as a tool server.
const fakeEnv = "AMBIT_TOOLSERVER_FAKE"

func TestMain(m *testing.M) {
	if os.Getenv(fakeEnv) != "" {
		runFake(os.Args[1:])
		return
	}
	// The thread that starts programs must never end, because the kernel would then kill the programs.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/ambit-run/ambit/internal/exec/toolserver.startPrograms"))
}

// fake is a tool server on stdio that misbehaves as its arguments request.
type fake struct {
	does  []string // the requested misbehaviors
	state string   // the path of a folder that the test and later starts of the server can read
	tools []string
	page  int
	life  int  // how often the server was started so far, including this start
	asks  bool // set if the client accepts elicitation requests
	asked fakeRequest
	out   io.Writer
	conn  net.Conn
}

func runFake(args []string) {
	f := &fake{out: os.Stdout}
	flags := flag.NewFlagSet("fake", flag.ExitOnError)
	flags.String("marker", "", "a word by which the test finds this process")
	does := flags.String("do", "", "misbehaviors, separated by commas")
	tools := flags.String("tools", "", "names")
	flags.StringVar(&f.state, "state", "", "folder")
	flags.IntVar(&f.page, "page", 1000, "number of tools on one page")
	meet := flags.String("meet", "", "two files: create the first and wait for the second")
	_ = flags.Parse(args)
	f.does, f.tools = strings.Split(*does, ","), strings.Split(*tools, ",")
	f.life = f.count("lives")
	switch {
	case f.is("hang"):
		select {}
	case f.is("exit"):
		fmt.Fprintln(os.Stderr, "the database is on fire")
		os.Exit(3)
	case f.is("dial-and-exit"):
		_, err := net.Dial("tcp", "refused.test:443")
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	case f.is("exit-later") && f.life > 1:
		os.Exit(4)
	case f.is("flood"):
		chunk := strings.Repeat(strings.Repeat("f", 99)+"\n", 10_000)
		for range 20 {
			_, _ = os.Stderr.WriteString(chunk)
		}
	case f.is("noise"):
		for i := range 100 {
			f.say("Starting up, step " + strconv.Itoa(i) + "…")
		}
	case f.is("tell-environment"):
		fmt.Fprintln(os.Stderr, strings.Join(os.Environ(), " "))
		os.Exit(1)
	case f.is("stubborn"):
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	}
	if mine, other, ok := strings.Cut(*meet, ","); ok {
		f.write(mine, "here")
		f.await(other)
	}
	if f.life > 1 && f.is("wait-in-second-life") {
		f.await("go")
	}
	f.serve()
	if f.is("stubborn") {
		select {}
	}
}

func (f *fake) is(what string) bool { return slices.Contains(f.does, what) }

func (f *fake) path(name string) string { return filepath.Join(f.state, name) }

func (f *fake) write(name, content string) { _ = os.WriteFile(f.path(name), []byte(content), 0o600) }

func (f *fake) count(name string) int {
	b, _ := os.ReadFile(f.path(name))
	n, _ := strconv.Atoi(string(b))
	f.write(name, strconv.Itoa(n+1))
	return n + 1
}

// await polls for a file until it exists.
func (f *fake) await(name string) {
	for {
		if _, err := os.Stat(f.path(name)); err == nil {
			return
		}
		time.Sleep(time.Millisecond) // poll again after a pause
	}
}

func (f *fake) say(line string) { _, _ = io.WriteString(f.out, line+"\n") }

func (f *fake) notify(method, params string) {
	f.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, method, params))
}

type fakeRequest struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
	Params struct {
		Capabilities struct {
			Elicitation json.RawMessage `json:"elicitation"`
		} `json:"capabilities"`
		Name      string          `json:"name"`
		Cursor    string          `json:"cursor"`
		Arguments json.RawMessage `json:"arguments"`
		RequestID json.RawMessage `json:"requestId"`
		Meta      struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	} `json:"params"`
}

func (f *fake) answer(r fakeRequest, result string) {
	line := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, result)
	if f.is("answer-unknown-ids") {
		f.say(`{"jsonrpc":"2.0","id":987654,"result":{}}`)
		f.say(`{"jsonrpc":"2.0","id":"who","error":{"code":1,"message":"x"}}`)
	}
	f.say(line)
	if f.is("answer-twice") {
		f.say(strings.Replace(line, `"result":{`, `"result":{"second":true,`, 1))
	}
}

func (f *fake) refuse(r fakeRequest, code int, message string) {
	f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, r.ID, code, message))
}

func (f *fake) serve() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var r fakeRequest
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue
		}
		switch r.Method {
		case "server/discover":
			f.discover(r)
		case "initialize":
			f.write("greeted", "initialize")
			f.asks = r.Params.Capabilities.Elicitation != nil
			if f.is("mute") {
				select {}
			}
			if f.is("modern-only") {
				f.refuse(r, -32601, "there is no handshake here")
				continue
			}
			f.answer(r, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"fake","version":"1"}}`)
		case "tools/list":
			f.list(r)
		case "tools/call":
			f.call(r)
		case "": // the client's answer to the request of the tool "ask"
			f.answer(f.asked, fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, string(r.Result)+string(r.Error)))
		case "notifications/cancelled":
			f.write("cancelled", string(r.Params.RequestID))
		}
	}
}

func (f *fake) discover(r fakeRequest) {
	f.count("discovers")
	switch {
	case f.is("exit-on-discover"):
		os.Exit(5)
	case f.is("mute-on-discover"):
		f.does = append(f.does, "mute")
	case f.is("silent-on-discover"), f.is("slow") && f.life == 1:
	case f.is("modern") || f.is("modern-only"):
		f.answer(r, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`)
	default:
		f.refuse(r, -32601, "Method not found")
	}
}

// definitions returns the lines of tools.json in the state folder, or simple definitions of f.tools if there is
// no such file.
func (f *fake) definitions() []string {
	if b, err := os.ReadFile(f.path("tools.json")); err == nil {
		return strings.FieldsFunc(string(b), func(r rune) bool { return r == '\n' })
	}
	var list []string
	for _, name := range f.tools {
		list = append(list, definition(name))
	}
	if f.asks && f.is("more-for-askable") {
		list = append(list, definition("extra"))
	}
	return list
}

func definition(name string) string {
	return fmt.Sprintf(`{"name":%q,"description":"It does %s.","inputSchema":{"type":"object"},"x-unknown":{"n":1.0}}`, name, name)
}

func (f *fake) list(r fakeRequest) {
	f.count("lists")
	switch {
	case f.is("broken-list"):
		f.say(`{"jsonrpc":"2.0","id":` + string(r.ID) + `,"result":{"tools":[`)
		return
	case f.is("huge-list"):
		w := bufio.NewWriter(os.Stdout)
		_, _ = w.WriteString(`{"jsonrpc":"2.0","id":` + string(r.ID) + `,"result":{"tools":[],"x":"`)
		chunk := strings.Repeat("h", 1<<20)
		for range 100 {
			_, _ = w.WriteString(chunk)
		}
		_, _ = w.WriteString("\"}}\n")
		_ = w.Flush()
		return
	case f.is("list-error-later") && f.life == 1 && f.exists("announced"):
		f.refuse(r, -32603, "not now")
		return
	}
	all := f.definitions()
	from, _ := strconv.Atoi(r.Params.Cursor)
	to := min(from+f.page, len(all))
	next := ""
	if to < len(all) {
		next = fmt.Sprintf(`,"nextCursor":"%d"`, to)
	}
	f.answer(r, `{"tools":[`+strings.Join(all[from:to], ",")+`]`+next+`}`)
}

func (f *fake) exists(name string) bool {
	_, err := os.Stat(f.path(name))
	return err == nil
}

// call answers a tool call. The name of the tool selects what happens.
func (f *fake) call(r fakeRequest) {
	var args struct {
		Path, Content string
		PID           int
	}
	_ = json.Unmarshal(r.Params.Arguments, &args)
	text := string(r.Params.Arguments)
	switch r.Params.Name {
	case "crash", "crash_write":
		fmt.Fprintln(os.Stderr, "crashing")
		os.Exit(7)
	case "hang", "hang_write":
		f.write("hanging", string(r.ID))
		return
	case "ask":
		f.asked = r
		f.say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"who are you?"}}`)
		return
	case "fail":
		f.answer(r, `{"content":[{"type":"text","text":"no luck"}],"isError":true}`)
		return
	case "protocol_error":
		f.refuse(r, -32602, "bad arguments"+os.Getenv("TOKEN"))
		return
	case "progress":
		for i := range 3 {
			f.notify("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":%d,"note":"step %d"}`, r.Params.Meta.ProgressToken, i, i))
		}
	case "announce":
		f.write("announced", "")
		f.notify("notifications/tools/list_changed", "{}")
	case "log":
		if f.is("large-notifications") {
			f.notify("notifications/message", fmt.Sprintf(`{"level":"error","data":%q}`, strings.Repeat("large ", 50_000)))
		}
		f.notify("notifications/message", `{"level":"warning","data":"the disk is full"}`)
	case "environment":
		text = strings.Join(os.Environ(), "\n") + "\nARGS=" + strings.Join(os.Args, "|")
		fmt.Fprintln(os.Stderr, text)
		f.notify("notifications/message", fmt.Sprintf(`{"level":"info","data":%q}`, text))
		f.say(text)
	case "read":
		b, err := os.ReadFile(args.Path)
		if text = string(b); err != nil {
			text = "cannot: " + err.Error()
		}
	case "write":
		if text = "wrote"; os.WriteFile(args.Path, []byte(args.Content), 0o600) != nil {
			text = "cannot"
		}
	case "uncover":
		_ = syscall.Unmount(args.Path, 0)
		b, _ := os.ReadFile(filepath.Join(args.Path, args.Content))
		text = string(b)
	case "connect", "connect_crash", "run", "send": // the path is an address or a program; send uses the last connection
		var err error
		switch r.Params.Name {
		case "run":
			err = exec.Command(args.Path).Run()
		case "send":
			if _, err = io.WriteString(f.conn, "x"); err == nil {
				_, err = io.ReadFull(f.conn, make([]byte, 1))
			}
		default:
			for address := range strings.FieldsSeq(args.Path) {
				f.conn, err = net.Dial("tcp", address)
			}
		}
		if r.Params.Name == "connect_crash" {
			os.Exit(7)
		}
		if err != nil {
			message, _ := json.Marshal(err.Error())
			f.answer(r, fmt.Sprintf(`{"content":[{"type":"text","text":%s}],"isError":true}`, message))
			return
		}
		text = "done"
	case "signal":
		if text = "signalled"; syscall.Kill(args.PID, syscall.SIGKILL) != nil {
			text = "cannot"
		}
	}
	f.answer(r, fmt.Sprintf(`{"content":[{"type":"text","text":%q}],"odd":[1.50,{"_meta":null}]}`, text))
}
