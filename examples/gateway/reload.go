package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// pollEvery is how often the configuration file is looked at. What is there must
// look the same twice, so a change is in force after two polls.
const pollEvery = 250 * time.Millisecond

// watcher follows a configuration file. It looks at the text, not at times or file
// events, so that files that are renamed over the old one, mounted anew or reached
// by links that change are all seen.
type watcher struct {
	path  string
	base  config             // what the file is laid over
	apply func(config) error // puts a configuration in force, all of it or nothing
	log   *slog.Logger

	inForce string // the text that is in force
	seen    state  // what the last poll saw
	judged  state  // what was applied or told last
}

// state is what a poll finds: a text, or an error.
type state struct{ text, err string }

// load reads the file for the first time.
func (w *watcher) load() (config, error) {
	text, err := readConfig(w.path)
	if err != nil {
		return w.base, err
	}
	c, err := parseConfig(text, w.base)
	if err != nil {
		return w.base, fmt.Errorf("%s: %w", w.path, err)
	}
	w.inForce = string(text)
	w.seen = state{text: w.inForce}
	w.judged = w.seen
	return c, nil
}

// run polls until ctx ends.
func (w *watcher) run(ctx context.Context) {
	t := time.NewTicker(pollEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			w.poll()
		case <-ctx.Done():
			return
		}
	}
}

// poll applies what the file holds, once it has looked the same twice: somebody may
// be writing it. Whatever cannot be applied is told once and changes nothing.
func (w *watcher) poll() {
	text, err := readConfig(w.path)
	now := state{text: string(text)}
	if err != nil {
		now = state{err: err.Error()}
	}
	settled := now == w.seen
	w.seen = now
	if !settled || now == w.judged {
		return
	}
	w.judged = now
	if now.err == "" && now.text == w.inForce {
		w.log.Info("config file is again what is in force", "file", w.path)
		return
	}
	if err == nil {
		err = w.replace(text)
	}
	if err != nil {
		w.log.Error("config not applied, the old one stays in force", "file", w.path, "error", err)
		return
	}
	w.inForce = now.text
	w.log.Info("config applied", "file", w.path)
}

func (w *watcher) replace(text []byte) error {
	c, err := parseConfig(text, w.base)
	if err != nil {
		return err
	}
	return w.apply(c)
}
