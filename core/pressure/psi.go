package pressure

import (
	"errors"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

const hostPSI = "proc/pressure/memory"

// stalls is what a file of pressure stall information says: the part of the last 10 s, in
// percent, in which some or all tasks stood still for want of memory; -1 = it does not say.
type stalls struct{ some, full float64 }

var (
	errNoPSI = errors.New("no avg10 in it")

	// errUnsure keeps a machine's other tenants from being taken for this process.
	errUnsure = errors.New("no telling whether the cgroup has stall information of its own")
)

func readPSI(root fs.FS, name string) (stalls, error) {
	s, err := readAll(root, name, maxValue)
	if err != nil {
		return stalls{}, err
	}
	p, ok := parsePSI(s)
	if !ok {
		return stalls{}, fileError(name, errNoPSI)
	}
	return p, nil
}

// parsePSI is false when there is neither value. The other averages and total are of no interest, so
// it does not matter that total starts anew with its container.
func parsePSI(s string) (p stalls, ok bool) {
	p = stalls{-1, -1}
	for line := range strings.Lines(s) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		var into *float64
		switch f[0] {
		case "some":
			into = &p.some
		case "full":
			into = &p.full
		}
		if into == nil || *into >= 0 {
			continue
		}
		for _, field := range f[1:] {
			value, found := strings.CutPrefix(field, "avg10=")
			if !found {
				continue
			}
			if v, err := strconv.ParseFloat(value, 64); err == nil && v >= 0 && v <= 100 {
				*into, ok = v, true
			}
			break
		}
	}
	return p, ok
}

// psi reads the stalls of the own cgroup, and of the whole machine where the cgroup has
// no such file, or one that makes no sense. off says that it is of no use to try again: the
// kernel has been built or started without, which no later read changes.
func psi(root fs.FS, g *groups) (some, full reading, off bool) {
	own := g.unified
	p, host, err := stalls{}, false, fs.ErrNotExist
	if g.hasUnified {
		p, err = readPSI(root, path.Join(own.dir(own.path), "memory.pressure"))
	}
	none := errors.Is(err, fs.ErrNotExist)
	switch {
	case none && !g.sure:
		err = errUnsure
	case none || errors.Is(err, errNoPSI):
		var hostErr error
		if p, hostErr = readPSI(root, hostPSI); hostErr == nil || none {
			host, err, off = true, hostErr, errors.Is(hostErr, fs.ErrNotExist)
		}
	}
	if err != nil {
		r := missing(err)
		return r, r, off || errors.Is(err, errors.ErrUnsupported)
	}
	of := func(name string, v float64) reading {
		if v < 0 {
			return unknown("the stall information has no " + name)
		}
		r := reading{known: true, counts: true, value: v, host: host}
		if !host {
			r.level = own.path
		}
		return r
	}
	return of("some", p.some), of("full", p.full), false
}
