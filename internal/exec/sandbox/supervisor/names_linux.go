//go:build amd64 || arm64

package supervisor

import (
	"net"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/ambit-run/ambit/internal/gateway/egress"
)

// inventedRange contains the addresses that the resolver invents. They are public addresses, because many programs
// refuse to connect to private or reserved addresses. A program can reach the real hosts at these addresses only by
// name.
var inventedRange = netip.MustParsePrefix("11.0.0.0/15")

// maxNames is the maximum number of names that have an address at the same time. A further name takes over the
// address of the oldest name. This gives no access to another host, because the policy checks the name of every
// connection.
const maxNames = 8192

// names assigns an invented address to each name.
type names struct {
	mu      sync.Mutex
	address map[string]netip.Addr
	list    [maxNames]string // the names, in the order of their addresses
	next    int
}

// invented reports whether an address is in inventedRange.
func invented(a netip.Addr) bool { return inventedRange.Contains(a) }

// assign returns the address of a name.
func (n *names) assign(name string) netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, ok := n.address[name]; ok {
		return a
	}
	if n.address == nil {
		n.address = map[string]netip.Addr{}
	}
	i := n.next
	n.next = (i + 1) % maxNames
	delete(n.address, n.list[i])
	b := inventedRange.Addr().As4()
	number := i + 1
	b[2], b[3] = byte(number>>8), byte(number)
	n.list[i], n.address[name] = name, netip.AddrFrom4(b)
	return netip.AddrFrom4(b)
}

// name returns the name that belongs to an address, or "" if no name belongs to it.
func (n *names) name(a netip.Addr) string {
	b := a.As4()
	i := int(b[1])<<16 | int(b[2])<<8 | int(b[3])
	n.mu.Lock()
	defer n.mu.Unlock()
	if i < 1 || i > maxNames {
		return ""
	}
	return n.list[i-1]
}

// The ttl is short, because an address can be reassigned to another name.
const ttl = 60

// maxQuestion is the size of the largest query that is read.
const maxQuestion = 1 << 10

// serve answers queries until the socket is closed.
func (n *names) serve(socket net.PacketConn) {
	query := make([]byte, maxQuestion)
	for {
		size, from, err := socket.ReadFrom(query)
		if err != nil {
			return
		}
		if reply := n.reply(query[:size]); reply != nil {
			socket.WriteTo(reply, from)
		}
	}
}

// reply answers one query. Every host name has exactly one IPv4 address, and there are no other records. reply
// returns nil for a message that is not a query with one question.
func (n *names) reply(query []byte) []byte {
	var p dnsmessage.Parser
	head, err := p.Start(query)
	if err != nil || head.Response {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	head = dnsmessage.Header{
		ID: head.ID, Response: true, OpCode: head.OpCode, RecursionDesired: head.RecursionDesired,
		RecursionAvailable: true,
	}
	name, err := egress.Host(strings.TrimSuffix(q.Name.String(), "."))
	if err != nil || q.Class != dnsmessage.ClassINET {
		head.RCode = dnsmessage.RCodeNameError
	}
	b := dnsmessage.NewBuilder(nil, head)
	b.EnableCompression()
	if b.StartQuestions() != nil || b.Question(q) != nil || b.StartAnswers() != nil {
		return nil
	}
	if head.RCode == dnsmessage.RCodeSuccess && q.Type == dnsmessage.TypeA {
		h := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: ttl}
		if b.AResource(h, dnsmessage.AResource{A: n.assign(name).As4()}) != nil {
			return nil
		}
	}
	reply, err := b.Finish()
	if err != nil {
		return nil
	}
	return reply
}
