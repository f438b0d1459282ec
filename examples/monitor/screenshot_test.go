package main

import (
	"bytes"
	"cmp"
	"context"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	headgate "github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/monitor"
)

// TestScreenshot makes the picture of the documentation: HEADGATE_SCREENSHOT says into
// which file, below the root of the repository, and HEADGATE_SCREENSHOT_AFTER how long the
// load goes on before, 1m if it is not set. docs/monitor.png is of 15m40s, when all waves are high.
func TestScreenshot(t *testing.T) {
	into := os.Getenv("HEADGATE_SCREENSHOT")
	if into == "" {
		t.Skip("HEADGATE_SCREENSHOT does not say which file to write")
	}
	after := time.Minute
	if text := os.Getenv("HEADGATE_SCREENSHOT_AFTER"); text != "" {
		var err error
		after, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	b := startBrowser(t)
	s := serveGates(t, func(_ *headgate.Config, m *monitor.Config) {
		*m = monitor.DefaultConfig()
		m.Title = "demo"
	})
	loaded, unload := context.WithCancel(t.Context())
	over := startLoad(loaded, s.hg)
	t.Cleanup(func() {
		unload()
		require.NoError(t, over(context.Background()))
	})
	time.Sleep(after) // a real load takes real time
	p := b.open(t)
	p.like("prefers-color-scheme", "light")
	p.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(s.address))
	p.until(live + ` && document.querySelectorAll("#lanes-table tbody svg").length >= 3`)
	p.script(`globalThis.still = 0; setTimeout(() => globalThis.still = 1, 1000)`) // the bars move to their places
	p.until(`globalThis.still === 1`)
	shot, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	require.NoError(t, err)
	p.clean(s.URL)
	small := shrink(t, shot)
	require.Less(t, len(small), 300<<10)
	require.NoError(t, os.WriteFile(filepath.Join("..", "..", filepath.FromSlash(into)), small, 0o644))
}

// shrink writes a picture with the 256 colours that it has most of.
func shrink(t *testing.T, data []byte) []byte {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	box := from.Bounds()
	plain := image.NewRGBA(box)
	draw.Draw(plain, box, from, box.Min, draw.Src)
	count := map[color.RGBA]int{}
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			count[plain.RGBAAt(x, y)]++
		}
	}
	all := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int { return cmp.Compare(count[b], count[a]) })
	var palette color.Palette
	for _, c := range all[:min(256, len(all))] {
		palette = append(palette, c)
	}
	place := make(map[color.RGBA]uint8, len(all))
	for _, c := range all {
		place[c] = uint8(palette.Index(c))
	}
	to := image.NewPaletted(box, palette)
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			to.SetColorIndex(x, y, place[plain.RGBAAt(x, y)])
		}
	}
	var out bytes.Buffer
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to))
	return out.Bytes()
}
