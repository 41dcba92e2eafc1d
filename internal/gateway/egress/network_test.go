package egress

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// A decision says whether a change of the policy would allow the connection. A host that cannot be reached is not
// refused.
func TestRemedies(t *testing.T) {
	listed := Policy{Mode: ModeHosts, Hosts: []string{"listed.test"}, Private: []string{"meta.test:80", "169.254.169.254:80"}}
	for _, tt := range []struct {
		host, address string
		policy        Policy
		want          Decision
	}{
		{"other.test", "", listed, Decision{Remedy: AddHost}},
		{"other.test", "", Policy{}, Decision{Remedy: AddHost}},
		{"93.184.215.14", "", listed, Decision{Remedy: AddHost}},
		{"10.0.0.1", "", listed, Decision{Remedy: AddPrivate}},
		{"10.0.0.1", "", Policy{Mode: ModeFull}, Decision{Remedy: AddPrivate}},
		{"127.0.0.1", "", Policy{}, Decision{Remedy: AddPrivate}},
		{"listed.test", "192.168.0.1", listed, Decision{Remedy: AddPrivate}},
		{"listed.test", "169.254.169.254", listed, Decision{}},
		{"meta.test", "169.254.169.254", listed, Decision{}},
		{"169.254.169.254", "", listed, Decision{}},
		{"169.254.169.254", "", Policy{Mode: ModeFull}, Decision{}},
		{"168.63.129.16", "", Policy{}, Decision{}},
		{"two..dots", "", listed, Decision{}},
		{"listed.test", "93.184.215.14", listed, Decision{Unreachable: true}},
		{"listed.test", "", listed, Decision{Unreachable: true}},
	} {
		t.Run(tt.host+" "+tt.address+" "+string(tt.policy.Mode), func(t *testing.T) {
			d := NewDialer(Switches{})
			d.Resolver = &answers{lists: [][]netip.Addr{nil}}
			if tt.address != "" {
				d.Resolver = &answers{lists: [][]netip.Addr{addrs(tt.address)}}
			}
			d.open = func(context.Context, netip.AddrPort, control) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
			var got []Decision
			n := NewNetwork(d, tt.policy, func(d Decision) { got = append(got, d) })
			link, err := n.Open(t.Context(), tt.host, 80)
			if link != nil || len(got) != 1 || got[0].Refusal == nil {
				t.Fatalf("got %v and %+v, want one decision", link, got)
			}
			if got[0].Remedy != tt.want.Remedy || got[0].Unreachable != tt.want.Unreachable {
				t.Errorf("got %+v, want %+v", got[0], tt.want)
			}
			if _, refused := errors.AsType[*call.Refusal](err); refused == tt.want.Unreachable {
				t.Errorf("got the error %v", err)
			}
		})
	}
}

// carried returns both ends of a link, and a channel that is closed when the link ends.
func carried(t *testing.T, p Policy) (n *Network, program, host net.Conn, ended chan struct{}) {
	program, inside := net.Pipe()
	up, host := net.Pipe()
	n = NewNetwork(NewDialer(Switches{}), p, nil)
	n.slots <- struct{}{}
	l := &Link{network: n, host: "a.test", port: "5432", up: halves{up}}
	ended = make(chan struct{})
	go func() {
		l.Carry(context.Background(), inside)
		close(ended)
	}()
	t.Cleanup(func() {
		program.Close()
		host.Close()
		<-ended
	})
	return n, program, host, ended
}

// halves is a connection that can be closed in one direction.
type halves struct{ net.Conn }

func (halves) CloseWrite() error { return nil }

// An idle connection of a long-running program stays open until a peer closes it. An idle connection of any other
// program is closed.
func TestIdle(t *testing.T) {
	for _, long := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			_, program, host, ended := carried(t, Policy{Mode: ModeFull, LongRunning: long})
			time.Sleep(10 * idleTime)
			synctest.Wait()
			select {
			case <-ended:
				if long {
					t.Error("the idle connection of a long-running program was closed")
				}
				return
			default:
				if !long {
					t.Error("the idle connection of a program was not closed")
				}
			}
			go program.Write([]byte("x"))
			if _, err := io.ReadFull(host, make([]byte, 1)); err != nil {
				t.Error(err)
			}
			program.Close() // the host does not notice
			time.Sleep(2 * idleTime)
			synctest.Wait()
			select {
			case <-ended:
			default:
				t.Error("the connection stayed open after the program closed it")
			}
		})
	}
}

// The traffic of a long-running program has no limit.
func TestTrafficOfLongRunning(t *testing.T) {
	for _, long := range []bool{false, true} {
		n, program, host, _ := carried(t, Policy{Mode: ModeFull, LongRunning: long})
		n.bytes.Store(maxTraffic)
		go program.Write([]byte("x"))
		if _, err := io.ReadFull(host, make([]byte, 1)); (err == nil) != long {
			t.Errorf("long-running %v: got %v", long, err)
		}
	}
}

// Active lists a connection while it carries data.
func TestActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, program, host, ended := carried(t, Policy{Mode: ModeFull, LongRunning: true})
		go program.Write([]byte("x"))
		io.ReadFull(host, make([]byte, 1))
		if got := n.Active(time.Now()); !slices.Equal(got, []string{"a.test:5432"}) {
			t.Errorf("got %q", got)
		}
		time.Sleep(time.Second)
		if got := n.Active(time.Now()); len(got) != 0 {
			t.Errorf("got %q for an idle connection", got)
		}
		start := time.Now()
		program.Close()
		host.Close()
		<-ended
		if got := n.Active(start); len(got) != 0 {
			t.Errorf("got %q for a closed connection", got)
		}
	})
}

// A loopback address means this machine only if the policy lists it as private.
func TestLoopback(t *testing.T) {
	n := NewNetwork(NewDialer(Switches{}), Policy{Private: []string{"localhost:1", "127.0.0.1:2", "[::1]:3"}}, nil)
	for address, want := range map[string]string{
		"127.0.0.1:1": "localhost", "[::1]:1": "localhost", "127.0.0.1:2": "127.0.0.1", "[::1]:2": "", "[::1]:3": "::1",
		"127.0.0.1:4": "",
	} {
		if got := n.Loopback(netip.MustParseAddrPort(address)); got != want {
			t.Errorf("%s: got %q, want %q", address, got, want)
		}
	}
}

// TestMuchData sends more data than fits in all buffers, in both directions, and then ends one direction.
func TestMuchData(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accept := make(chan net.Conn)
	go func() {
		defer close(accept)
		for range 2 {
			if c, err := l.Accept(); err == nil {
				accept <- c
			}
		}
	}()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	n := NewNetwork(NewDialer(Switches{}), Policy{Mode: ModeHosts, Private: []string{l.Addr().String()}}, nil)
	link, err := n.Open(t.Context(), "127.0.0.1", port)
	if err != nil {
		t.Fatal(err)
	}
	server := <-accept
	program, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	inside := <-accept
	sent := make([]byte, 16<<20)
	rand.NewChaCha8([32]byte{}).Read(sent)
	var work sync.WaitGroup
	work.Go(func() { link.Carry(t.Context(), inside) })
	work.Go(func() {
		io.Copy(server, server)
		server.(*net.TCPConn).CloseWrite()
	})
	work.Go(func() {
		program.Write(sent)
		program.(*net.TCPConn).CloseWrite()
	})
	got, err := io.ReadAll(program)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("got %d bytes and the error %v, want the %d bytes that were sent", len(got), err, len(sent))
	}
	program.Close()
	server.Close()
	work.Wait()
	if carried := n.bytes.Load(); carried != int64(2*len(sent)) {
		t.Errorf("counted %d bytes, want %d", carried, 2*len(sent))
	}
}
