package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/headgate-go/headgate/core/gate"
)

// column is one of the table.
type column struct {
	head string
	note string // what it says, "" = its head says it
	peer bool   // there only beside other libraries
	cell func(w row) string
}

// bodyColumns are those of scenarios about bodies, with those that only other libraries
// need where there are any.
func bodyColumns(peers bool) []column {
	inFlight := "bare: body bytes sent for requests that are not over, counted by the client; " +
		"headgate: inflight_bytes of its status, every " + period.String()
	whoRefused := "answered with a Headgate-Reason, by reason"
	if peers {
		inFlight += "; others: the bodies of the requests inside, as they declare them, every " + period.String()
		whoRefused += "; others: answered with the status that they refuse with"
	}
	var shown []column
	for _, c := range []column{
		{head: "app", cell: func(w row) string { return w.name }},
		{head: "limit", peer: true, note: "what is let in at once", cell: row.limitCell},
		{head: "answered", note: "200 with the right byte count and digest", cell: func(w row) string { return fmt.Sprintf("%d of %d", w.answered, w.total) }},
		{head: "refused", note: whoRefused, cell: func(w row) string { return w.refused.cell() }},
		{head: "lost", note: "no answer, or one cut short", cell: func(w row) string { return fmt.Sprint(w.lost.sum()) }},
		{head: "wrong", note: "any other answer", cell: func(w row) string { return w.wrong.cell() }},
		{head: "peak in flight", note: inFlight, cell: row.flightCell},
		{head: "peak memory", note: "the app's resident set", cell: row.memoryCell},
		{head: "p50", cell: func(w row) string { return w.all.cell(w.all.p50) }},
		{head: "p99", note: "of the answered, from when a request was due to the end of its answer", cell: func(w row) string { return w.all.cell(w.all.p99) }},
		{head: "small p99", note: fmt.Sprintf("the same of bodies under %v", gate.Size(smallBytes)), cell: func(w row) string { return w.small.cell(w.small.p99) }},
		{head: "end", note: "how the app ended", cell: func(w row) string { return w.end }},
		{head: "lacks", peer: true, note: lacksNote, cell: row.lacksCell},
	} {
		if peers || !c.peer {
			shown = append(shown, c)
		}
	}
	return shown
}

func (w row) limitCell() string {
	switch {
	case w.peer != nil:
		return fmt.Sprintf("%d requests", w.limit.requests)
	case w.budget > 0:
		return mib(w.budget)
	}
	return "none"
}

func (w row) flightCell() string {
	if w.budget == 0 {
		return mib(w.peakFlight)
	}
	return fmt.Sprintf("%s of %s (%.0f %%)", mib(w.peakFlight), mib(w.budget), 100*float64(w.peakFlight)/float64(w.budget))
}

func (w row) memoryCell() string {
	if w.peakMemory == 0 {
		return "n/a"
	}
	return mib(w.peakMemory)
}

func (w row) lacksCell() string {
	switch {
	case w.peer != nil:
		return strings.Join(w.peer.lacks, ", ")
	case w.budget > 0:
		return "-"
	}
	return "any limit"
}

// writeTable writes a table for each scenario, and then what the columns mean.
func (r *report) writeTable(to io.Writer) error {
	var b bytes.Buffer
	for _, s := range r.Sections {
		fmt.Fprintf(&b, "%s\n%s\n\n", s.Title, s.Setting)
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, cells := range append([][]string{s.Heads}, s.Rows...) {
			_, _ = fmt.Fprintln(t, strings.Join(cells, "\t")) // Flush has the error
		}
		if err := t.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(&b)
		for _, n := range s.Notes {
			fmt.Fprintln(&b, n)
		}
		if len(s.Notes) > 0 {
			fmt.Fprintln(&b)
		}
	}
	for i, l := range r.Legends {
		if i > 0 {
			fmt.Fprintln(&b)
		}
		if len(r.Legends) > 1 {
			fmt.Fprintln(&b, l.Title)
		}
		for _, n := range l.Notes {
			fmt.Fprintln(&b, n)
		}
	}
	_, err := to.Write(b.Bytes())
	return err
}
