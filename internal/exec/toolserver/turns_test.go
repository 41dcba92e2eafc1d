package toolserver

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func row(sizes map[string]int64, aliases ...string) []*server {
	var list []*server
	for _, alias := range aliases {
		list = append(list, &server{alias: alias})
	}
	orderHashing(list, func(s *server) int64 { return sizes[s.alias] })
	return list
}

func TestLargestIsHashedFirst(t *testing.T) {
	servers := row(map[string]int64{"small": 1, "large": 3, "medium": 2}, "none", "small", "large", "medium", "also none")
	var order []string
	for range servers {
		for _, s := range servers {
			select {
			case <-s.turn.passed:
				continue
			default:
			}
			if before := s.turn.before; before != nil {
				select {
				case <-before:
				default:
					continue // not yet
				}
			}
			if err := s.turn.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			order = append(order, s.alias)
			s.turn.pass()
			s.turn.pass() // which is what a restart does
			break
		}
	}
	if got := strings.Join(order, ", "); got != "large, medium, small, none, also none" {
		t.Errorf("hashed in the order %s", got)
	}
}

func TestNobodyWaitsInARowForEver(t *testing.T) {
	servers := row(map[string]int64{"first": 1}, "second", "first")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := servers[0].turn.wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("waited: %v", err)
	}
	if err := servers[1].turn.wait(ctx); err != nil {
		t.Errorf("the first one waited: %v", err)
	}
}
