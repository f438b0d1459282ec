package gatetest

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// A sound adapter passes.
func TestSoundAdapterPasses(t *testing.T) {
	Run(t, sample{}.adapter())
}

// An adapter that cannot do much passes when it says so.
func TestDeclaredDeviationsPass(t *testing.T) {
	Run(t, sample{poor: true}.adapter())
}

// adapter declares all deviations, or none.
func (a sample) adapter() Adapter {
	all := Adapter{Start: a.start, ItemRoute: "unmatched"}
	for v, i := reflect.ValueOf(&all.Deviations).Elem(), 0; i < v.NumField(); i++ {
		v.Field(i).SetBool(a.poor)
	}
	return all
}

// recorder is a reporter that keeps what it is told.
type recorder struct {
	mu     sync.Mutex
	failed bool
	lines  []string
}

func (r *recorder) note(failed bool, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failed
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *recorder) Helper()                           {}
func (r *recorder) Logf(format string, args ...any)   { r.note(false, format, args...) }
func (r *recorder) Errorf(format string, args ...any) { r.note(true, format, args...) }
func (r *recorder) Fatalf(format string, args ...any) {
	r.note(true, format, args...)
	runtime.Goexit()
}

func (r *recorder) Failed() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.failed }

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

// judge performs a scene and returns what it had to say.
func (s *suite) judge(c scene, p protocol) *recorder {
	r, done := new(recorder), make(chan struct{})
	go func() {
		defer close(done)
		s.perform(r, c, p)
	}()
	<-done
	return r
}
