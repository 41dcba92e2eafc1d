package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/ambit-run/ambit/bench/plot/chart"
	"github.com/ambit-run/ambit/internal/store/home"
)

// growConsole measures the pages of the console for journals of several sizes. The newest record has the current
// time, so that the charts of the console have calls to count.
func growConsole(ctx context.Context, s *setup, sizes sizes) (chart.Chart, error) {
	times := make([]chart.Line, len(pages(0)))
	weights := make([]chart.Line, len(times))
	agents := filepath.Join(s.dir, "agents")
	if err := s.writeAgent(agents, "echo", 3); err != nil {
		return chart.Chart{}, err
	}
	for _, n := range sizes {
		where := home.At(filepath.Join(s.dir, fmt.Sprint(n)))
		if err := fill(ctx, where, 0, n, time.Now().Add(-time.Duration(n)*time.Second)); err != nil {
			return chart.Chart{}, err
		}
		d, err := s.serveIn(ctx, where.Dir(), agents, 1)
		if err != nil {
			return chart.Chart{}, err
		}
		err = d.signIn(ctx, func(get func(path string) (int, error)) error {
			for i, p := range pages(n) {
				size := 0
				took, err := median(21, func(int) (err error) {
					size, err = get(p.path)
					return err
				})
				if err != nil {
					return err
				}
				times[i].Name, weights[i].Name = p.name, p.name+", size"
				times[i].Add(n, ms(took))
				weights[i].Add(n, float64(size)/1000)
			}
			return nil
		})
		d.close()
		if err != nil {
			return chart.Chart{}, err
		}
		if err := os.RemoveAll(where.Dir()); err != nil {
			return chart.Chart{}, err
		}
	}
	return chart.Chart{
		Title: "Pages of the console by records in the journal", X: "records", Command: "bench/run growth -only console",
		Panels: []chart.Panel{{Title: "Time, p50", Unit: "ms", Log: true, Lines: times}, {Title: "Size", Unit: "kB", Log: true, Lines: weights}},
	}, nil
}

type page struct{ name, path string }

// pages lists the measured pages for a journal of n records.
func pages(n int) []page {
	return []page{
		{"agents", ""},
		{"an agent", "agents/echo"},
		{"a tool", "agents/echo/tools/" + toolName(0)},
		{"approvals", "approvals"},
		{"journal", "journal"},
		{"a tool used once", "journal?tool=" + rare},
		{"a record", fmt.Sprintf("journal/0/%d", n/2)},
		{"activity", "activity?period=7d"},
		{"queue", "queue"},
		{"policy", "policy?agent=echo&tool=" + toolName(0)},
	}
}

// signIn signs in to the console and calls the given function. It passes get, which loads a page and returns its size.
func (d *daemon) signIn(ctx context.Context, use func(get func(path string) (int, error)) error) error {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return err
	}
	link, err := url.Parse(d.link)
	if err != nil {
		return err
	}
	client := &http.Client{Jar: jar}
	defer client.CloseIdleConnections()
	answer, err := client.PostForm(d.url+"/login", link.Query())
	if err != nil {
		return err
	}
	answer.Body.Close()
	base := answer.Request.URL // the address to which the sign-in redirected
	return use(func(path string) (int, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, base.String()+path, nil)
		if err != nil {
			return 0, err
		}
		answer, err := client.Do(r)
		if err != nil {
			return 0, err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err == nil && answer.StatusCode != http.StatusOK {
			err = fmt.Errorf("/%s: %s", path, answer.Status)
		}
		return len(text), err
	})
}
