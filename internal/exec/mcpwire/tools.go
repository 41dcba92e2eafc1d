package mcpwire

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ambit-run/ambit/internal/gateway/rawjson"
)

// Tool is one tool as the server lists it.
type Tool struct {
	Name string
	Raw  jsontext.Value // the whole definition, as the server wrote it

	// Invalid is the reason that the protocol forbids the tool: invalid x-mcp-header annotations. They
	// count only over HTTP in 2026-07-28.
	Invalid error
}

// maxPages bounds a list of tools. Its total size is bounded like a message.
const maxPages = 1000

// ListTools returns all pages of the server's list of tools.
func (c *Conn) ListTools(ctx context.Context) ([]Tool, error) {
	var tools []Tool
	var cursors []string
	var params jsontext.Value
	size := 0
	for range maxPages {
		result, err := c.Call(ctx, methodListTools, params)
		if err != nil {
			return nil, err
		}
		if size += len(result); size > c.opts.MaxMessage {
			return nil, fmt.Errorf("%s: %w", methodListTools, &TooLargeError{Limit: c.opts.MaxMessage})
		}
		page, cursor, err := readTools(result)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", methodListTools, err)
		}
		tools = append(tools, page...)
		if cursor == nil {
			c.bindHeaders(tools)
			return tools, nil
		}
		if slices.Contains(cursors, string(cursor)) {
			return nil, fmt.Errorf("%s: %w", methodListTools, malformed("its pages form a cycle", cursor))
		}
		cursors = append(cursors, string(cursor))
		params = slices.Concat([]byte(`{"cursor":`), cursor, []byte("}"))
	}
	return nil, fmt.Errorf("%s: the list has more than %d pages", methodListTools, maxPages)
}

// readTools reads one page; cursor is the raw string for the next page.
func readTools(result []byte) (tools []Tool, cursor []byte, err error) {
	var list, kind []byte
	if len(result) == 0 || result[0] != '{' {
		return nil, nil, malformed("the result is not an object", result)
	}
	w := rawjson.Walk(result)
	for k, v, ok := w.Member(); ok; k, v, ok = w.Member() {
		field := &list
		switch {
		case rawjson.Named(k, "tools"):
		case rawjson.Named(k, "nextCursor"):
			field = &cursor
		case rawjson.Named(k, "resultType"):
			field = &kind
		default:
			continue
		}
		if *field != nil {
			return nil, nil, malformed("a member appears twice", result)
		}
		*field = v
	}
	switch {
	case kind != nil && string(kind) != `"complete"`:
		return nil, nil, malformed("the result is of type "+sample(string(kind)), result)
	case len(list) == 0 || list[0] != '[':
		return nil, nil, malformed("the result has no list of tools", result)
	case string(cursor) == "null" || string(cursor) == `""`:
		cursor = nil
	case cursor != nil && cursor[0] != '"':
		return nil, nil, malformed("the cursor is not a string", result)
	}
	w = rawjson.Walk(list)
	for raw, ok := w.Element(); ok; raw, ok = w.Element() {
		name, err := toolName(raw)
		if err != nil {
			return nil, nil, err
		}
		tools = append(tools, Tool{Name: name, Raw: raw})
	}
	return tools, cursor, nil
}

// toolName requires exactly one name, because a second one would make calls ambiguous.
func toolName(raw []byte) (string, error) {
	if raw[0] != '{' {
		return "", malformed("a tool is not an object", raw)
	}
	var name []byte
	w := rawjson.Walk(raw)
	for k, v, ok := w.Member(); ok; k, v, ok = w.Member() {
		if !rawjson.Named(k, "name") {
			continue
		}
		if name != nil {
			return "", malformed("a tool has two names", raw)
		}
		name = v
	}
	s, ok := rawjson.Text(name)
	if !ok || s == "" {
		return "", malformed("a tool has no name", raw)
	}
	return s, nil
}

// bindHeaders records which arguments a modern server over HTTP requires in headers.
func (c *Conn) bindHeaders(tools []Tool) {
	if s := c.server.Load(); c.http == nil || s == nil || !s.Modern {
		return
	}
	bound := make(map[string][]paramHeader)
	for i := range tools {
		headers, err := paramHeaders(rawjson.Lookup(tools[i].Raw, "inputSchema"))
		if err != nil {
			tools[i].Invalid = err
		} else if len(headers) > 0 {
			bound[tools[i].Name] = headers
		}
	}
	c.headers.Store(&bound)
}
