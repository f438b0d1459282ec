package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// columns are the table's, and what each says.
func columns() [][2]string {
	return [][2]string{
		{"app", ""},
		{"answered", "200 with the right byte count and digest"},
		{"refused", "answered with a Headgate-Reason, by reason"},
		{"lost", "no answer, or one cut short"},
		{"wrong", "any other answer"},
		{"peak in flight", "bare: body bytes sent for requests that are not over, counted by the client; headgate: inflight_bytes of its status, every " + period.String()},
		{"peak memory", "the app's resident set"},
		{"p50", ""},
		{"p99", "of the answered, from when a request was due to the end of its answer"},
		{"end", "how the app ended"},
	}
}

// cells are the row in the table's order.
func (w row) cells() []string {
	flight, mem, p50, p99 := mib(w.peakFlight), "n/a", "-", "-"
	if w.budget > 0 {
		flight = fmt.Sprintf("%s of %s (%.0f %%)", flight, mib(w.budget), 100*float64(w.peakFlight)/float64(w.budget))
	}
	if w.peakMemory > 0 {
		mem = mib(w.peakMemory)
	}
	if w.answered > 0 {
		p50, p99 = seconds(w.p50), seconds(w.p99)
	}
	return []string{
		w.name, fmt.Sprintf("%d of %d", w.answered, w.total), w.refused.cell(), fmt.Sprint(w.lost.sum()),
		w.wrong.cell(), flight, mem, p50, p99, w.end,
	}
}

// writeTable writes the table and what its columns mean.
func (r *report) writeTable(to io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n%s\n\n", r.Title, r.Setting)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, cells := range append([][]string{r.Heads}, r.Rows...) {
		_, _ = fmt.Fprintln(t, strings.Join(cells, "\t")) // Flush has the error
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(&b, "\n%s\n", strings.Join(r.Notes, "\n"))
	_, err := to.Write(b.Bytes())
	return err
}
