package lanes

import (
	"math"

	"github.com/headgate-go/headgate/core/pressure"
)

// refLaw is the law as the package comment tells it, in the plainest form there is: it
// keeps what happened in lists and works everything out when a window closes. It shares
// no code and no constant with the law.
type refLaw struct {
	algorithm          Algorithm
	least, start, most int64
	window             int64 // nanoseconds, as all times
	limit              int64
	jitter             func() float64

	// of this window
	good, bad int
	uses      []float64
	queue     bool
	wasEmpty  bool
	worst     pressure.Severity
	halved    int64

	// of the latency
	source       source
	samples      []float64 // seconds, since the averages moved
	skipped      int       // holds
	short, long  float64
	noise        float64
	fresh        bool
	age, doubted int
	early        []float64

	// of cuts and dips
	deaf, await int64 // until when
	waiting     bool
	target      float64
	dip         bool
	before      int64
	due         int64
	wait        int64 // until when it does not grow
	gap         int64
}

func newRefLaw(c lawConfig, jitter func() float64) *refLaw {
	return &refLaw{
		algorithm: c.algorithm, least: c.least, start: c.start, most: c.most, window: int64(c.window), limit: c.start,
		jitter: jitter, halved: -1 << 60, gap: 30,
	}
}

func (m *refLaw) to(n float64) {
	m.limit = int64(n)
	if m.limit < m.least {
		m.limit = m.least
	}
	if m.limit > m.most {
		m.limit = m.most
	}
}

func (m *refLaw) took(from source, latency float64, now int64) {
	m.good++
	if m.algorithm != Gradient || latency <= 0 || now < m.deaf {
		return
	}
	if from == held && m.source == firstByte {
		m.skipped++
		if m.skipped < 1000 {
			return
		}
	}
	if from != m.source {
		m.source, m.samples, m.short, m.long, m.noise, m.fresh, m.age, m.doubted, m.early = from, nil, 0, 0, 0, false, 0, 0, nil
	}
	m.skipped = 0
	m.samples = append(m.samples, latency)
}

func (m *refLaw) pressed(s pressure.Severity, now int64) {
	m.worst = max(m.worst, s)
	if s == pressure.Critical && now-m.halved >= m.window && m.algorithm != Fixed {
		m.halved = now
		m.dip, m.waiting = false, false
		if m.limit > m.least {
			m.to(float64(m.limit) * 0.5)
			m.deaf = now + m.window*int64(min(max(math.Ceil(2*m.long*1e9/float64(m.window)), 1), 600))
			m.samples, m.fresh = nil, true
		}
	}
}

func (m *refLaw) steep() bool  { return m.long > 0 && m.short/m.long-1 >= 0.25 }
func (m *refLaw) raised() bool { return m.long > 0 && m.short/m.long-1 >= 0.125 }

// logMean is the mean of the logarithms and their variance.
func logMean(samples []float64) (mean, variance float64) {
	for _, s := range samples {
		mean += math.Log(s) / float64(len(samples))
	}
	for _, s := range samples {
		variance += (math.Log(s) - mean) * (math.Log(s) - mean) / float64(len(samples))
	}
	return mean, variance
}

func (m *refLaw) enough() bool {
	n := float64(len(m.samples))
	if n < 8 {
		return false
	}
	mean, variance := logMean(m.samples)
	deviation := math.Sqrt(max(variance, m.noise) / n)
	change := mean - math.Log(m.long)
	return n >= 256 || deviation <= 0.08 || m.long > 0 && change >= math.Log(1.25) && change >= 3*deviation
}

func (m *refLaw) cut(part float64, now int64) {
	if m.limit == m.least {
		return
	}
	m.to(float64(m.limit) * part)
	m.target = m.short * math.Sqrt(part)
	windows := min(max(math.Ceil(2*m.long*1e9/float64(m.window)), 1), 600)
	m.deaf = now + int64(windows)*m.window
	m.waiting, m.await = true, m.deaf+int64(max(windows, 30))*m.window
	if m.algorithm == AIMD {
		m.await = now + 3*m.window
	}
	m.samples, m.fresh = nil, true
}

func (m *refLaw) endDip(gap, now int64) {
	if m.dip {
		m.to(float64(m.before))
		m.dip = false
		m.plan(gap, now)
	}
}

func (m *refLaw) plan(gap, now int64) {
	m.gap = gap
	lasts := int64(min(max(math.Ceil(2*m.long*1e9/float64(m.window)), 1), 600))
	m.due = now + int64(float64(gap*max(1, lasts/4))*(0.5+m.jitter())*float64(m.window))
}

// average moves the averages and says whether it did.
func (m *refLaw) average(now, inUse int64, util float64, idle bool) bool {
	switch {
	case idle:
		m.samples, m.fresh = nil, true
		m.short = min(m.short, m.long)
	case m.steep():
		if m.doubted++; m.doubted >= 3600 || m.age < 30 && m.doubted >= 60 {
			m.long, m.age, m.doubted = m.short, 0, 0
		}
	default:
		if m.limit == m.least && m.raised() {
			m.long = 0.999*m.long + 0.001*m.short
		}
		m.doubted = max(0, m.doubted-1)
	}
	if m.dip && now >= m.deaf && inUse > m.limit {
		m.waiting = false
		m.endDip(600, now)
	}
	if !m.enough() {
		if m.waiting && now >= m.await {
			m.waiting = false
			m.endDip(120, now)
		}
		return false
	}
	mean, variance := logMean(m.samples)
	m.noise = (m.noise + variance) / 2
	value := math.Exp(mean)
	if m.short == 0 || m.fresh {
		m.short = value
	} else {
		m.short = (m.short + value) / 2
	}
	m.samples, m.fresh = nil, false
	if m.age < 6 { // the first is dropped, then the mean of the others
		if m.age++; m.age <= 2 {
			m.early = nil
		}
		if m.early = append(m.early, value); m.long == 0 {
			m.deaf = now + 2*m.window*int64(min(max(math.Ceil(2*value*1e9/float64(m.window)), 1), 600))
		}
		m.long = 0
		for _, v := range m.early {
			m.long += v / float64(len(m.early))
		}
		m.short, m.waiting = m.long, false
		m.endDip(30, now)
		return true
	}
	if m.waiting {
		m.judge(now)
	} else if !m.steep() {
		m.age++
		if util < 0.7 && !m.raised() || m.short < 0.9*m.long {
			m.long = 0.9*m.long + 0.1*m.short
		}
	}
	return true
}

// judge says what a cut has done.
func (m *refLaw) judge(now int64) {
	m.waiting = false
	fell := m.short < m.target
	if !m.steep() {
		m.age++
		if m.short < m.long || !fell && !m.raised() {
			m.long = (m.long + m.short) / 2
		} else if !fell && m.dip {
			m.long = 0.95*m.long + 0.05*m.short
		}
	}
	switch {
	case !m.dip:
	case !fell:
		m.endDip(min(2*m.gap, 120), now)
	case m.limit > m.least && !m.steep():
		m.before = m.limit
		m.cut(0.7, now)
	default:
		m.dip = false
		m.plan(30, now)
	}
}

func (m *refLaw) close(now, inUse int64, waiting bool, s pressure.Severity) {
	m.uses, m.queue = append(m.uses, min(1, float64(inUse)/float64(m.limit))), m.queue || waiting
	m.pressed(s, now)
	if m.algorithm != Fixed {
		m.decide(now, inUse)
	}
	m.good, m.bad, m.uses, m.queue, m.worst, m.wasEmpty = 0, 0, nil, false, pressure.Normal, inUse == 0
}

func (m *refLaw) decide(now, inUse int64) {
	util := 0.0
	for _, u := range m.uses {
		util += u
	}
	util /= float64(len(m.uses))
	if m.queue {
		util = 1
	}
	idle := m.wasEmpty && inUse == 0 && m.good == 0 && m.bad == 0 && util == 0
	moved := m.average(now, inUse, util, idle)
	calm := !m.waiting && !m.dip && m.bad == 0 && (!m.steep() || idle)
	switch {
	case m.worst == pressure.Critical:
	case m.worst == pressure.High, moved && m.steep():
		m.dip = false
		m.cut(0.8, now)
	case m.algorithm == AIMD && m.bad > 0 && !m.waiting:
		m.cut(0.8, now)
	case calm && util >= 0.7 && m.good > 0:
		if m.algorithm == Gradient && m.long > 0 && m.limit > m.least {
			if m.due == 0 {
				m.plan(m.gap, now)
			}
			if now >= m.due {
				m.dip, m.before = true, m.limit
				m.cut(0.7, now)
				return
			}
		}
		if !m.raised() && now >= m.wait {
			m.wait = now + int64(m.long*1e9/2)
			m.to(float64(m.limit + 1))
		}
	case calm && util <= 0.3 && m.limit < m.start:
		m.to(float64(m.limit + 1))
	}
}
