"use strict";
(() => {
  const MiB = 1 << 20;
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name.replaceAll(" ", "-")).trim();
  const byTime = (points, scale = 1) => [(points || []).map((p) => p.t), (points || []).map((p) => p.v / scale)];
  const charts = [];

  // A dashed line across the chart, with its name on it.
  const level = (value, text) => (u) => {
    const { ctx, bbox } = u, y = u.valToPos(value, "y", true);
    if (!value || y < bbox.top || y > bbox.top + bbox.height) return;
    stroke(ctx, [bbox.left, y], [bbox.left + bbox.width, y]);
    label(ctx, text, bbox.left + bbox.width - 6 * devicePixelRatio, y - 7 * devicePixelRatio, "right");
  };
  // A dashed line down the chart where an app died. The n-th name stands below the others.
  const death = (s, n = 0) => (u) => {
    if (!s || !s.died) return;
    const { ctx, bbox } = u, x = u.valToPos(s.died, "x", true);
    const left = x < bbox.left + bbox.width / 2, gap = 6 * devicePixelRatio;
    stroke(ctx, [x, bbox.top], [x, bbox.top + bbox.height]);
    label(ctx, s.name + " died", left ? x + gap : x - gap, bbox.top + bbox.height / 2 + n * 16 * devicePixelRatio, left ? "left" : "right");
  };
  const stroke = (ctx, from, to) => {
    ctx.save();
    ctx.strokeStyle = css("limit");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(...from);
    ctx.lineTo(...to);
    ctx.stroke();
    ctx.restore();
  };
  const label = (ctx, text, x, y, align) => {
    ctx.save();
    ctx.font = 12 * devicePixelRatio + "px system-ui, sans-serif";
    ctx.textAlign = align;
    // On a plate, so that it can be read where a curve passes.
    const width = ctx.measureText(text).width, pad = 3 * devicePixelRatio;
    ctx.globalAlpha = 0.6;
    ctx.fillStyle = css("card");
    ctx.fillRect((align === "right" ? x - width : x) - pad, y - 11 * devicePixelRatio, width + 2 * pad, 14 * devicePixelRatio);
    ctx.globalAlpha = 1;
    ctx.fillStyle = css("muted");
    ctx.fillText(text, x, y);
    ctx.restore();
  };

  const axis = (more) => ({ stroke: css("muted"), grid: { stroke: css("line"), width: 1 }, ticks: { stroke: css("line"), width: 1 }, font: "12px system-ui, sans-serif", ...more });
  const short = (v) => (v >= 100 ? v.toFixed(0) : v >= 1 ? +v.toFixed(1) + "" : +v.toFixed(3) + "");
  const read = (unit) => (u, v) => (v == null ? "–" : short(v) + unit);
  const curve = (name, color, unit, more) => ({ label: name, stroke: css(color), width: 2, spanGaps: true, points: { show: false }, value: read(unit), ...more });

  // The height is the plot's: the legend stands below it and may wrap.
  const draw = (id, at, tables, opts, hooks) => {
    const host = document.getElementById(id + "-" + at);
    const size = () => ({ width: host.clientWidth, height: 280 });
    const u = new uPlot({ ...size(), cursor: { points: { size: 7 } }, hooks: { draw: hooks }, ...opts }, uPlot.join(tables), host);
    charts.push({ u, host, watch: new ResizeObserver(() => u.width === host.clientWidth || u.setSize(size())) });
    charts.at(-1).watch.observe(host);
  };

  const upTo = (...tops) => (u, min, max) => [0, 1.08 * Math.max(max || 0, ...tops, 1e-6)];
  const time = { time: false, range: (u, min, max) => [0, max] };
  const seconds = { label: "time", value: (u, v) => (v == null ? "–" : v.toFixed(2) + " s") };

  const storm = (data, at) => (data.capacity ? calls : bodies)(data, at);

  // The charts of a storm of bodies: a line for each app, in the color that has its name.
  const bodies = (data, at) => {
    const apps = data.series, gated = apps.find((s) => s.name === "headgate") || {};
    const deaths = apps.filter((s) => s.died).map(death);
    const curves = (unit) => apps.map((s) => curve(s.name, s.name, unit));
    const limit = data.limit / MiB, budget = data.budget / MiB;
    draw("memory", at, apps.map((s) => byTime(s.memory, MiB)), {
      scales: { x: time, y: { range: upTo(limit) } },
      axes: [axis(), axis({ size: 56 })],
      series: [seconds, ...curves(" MiB")],
    }, [level(limit, "limit " + short(limit) + " MiB"), ...deaths]);
    draw("flight", at, apps.map((s) => byTime(s.flight, MiB)), {
      scales: { x: time, y: { range: upTo(budget) } },
      axes: [axis(), axis({ size: 56 })],
      series: [seconds, ...curves(" MiB")],
    }, [level(budget, "budget " + short(budget) + " MiB"), ...deaths]);
    const others = apps.filter((s) => s !== gated && s.name !== "bare");
    draw("budget", at, [byTime(gated.flight, MiB), ...others.map((s) => byTime(s.flight, MiB)), byTime(gated.waiting)], {
      scales: { x: time, y: { range: upTo(budget) }, n: { range: upTo(1) } },
      axes: [axis(), axis({ size: 56 }), axis({ side: 1, scale: "n", grid: { show: false }, stroke: css("waiting") })],
      series: [
        seconds,
        curve("headgate", "headgate", " MiB", { fill: css("headgate") + "22" }),
        ...others.map((s) => curve(s.name, s.name, " MiB", { width: 1 })),
        curve("waiting", "waiting", "", { scale: "n" }),
      ],
    }, [level(budget, "budget " + short(budget) + " MiB"), death(gated)]);
    latency(apps, at);
  };

  // Those of a storm of calls to a back end.
  const calls = (data, at) => {
    const apps = data.series, gated = apps.find((s) => s.name === "headgate") || {};
    const deaths = apps.filter((s) => s.died).map(death);
    const capacity = level(data.capacity, "capacity " + data.capacity);
    draw("backend", at, apps.map((s) => byTime(s.atBack)), {
      scales: { x: time, y: { range: upTo(data.capacity) } },
      axes: [axis(), axis({ size: 56 })],
      series: [seconds, ...apps.map((s) => curve(s.name, s.name, ""))],
    }, [capacity, ...deaths]);
    draw("queue", at, [byTime(gated.atBack), byTime(gated.waiting)], {
      scales: { x: time, y: { range: upTo(data.capacity) }, n: { range: upTo(1) } },
      axes: [axis(), axis({ size: 56 }), axis({ side: 1, scale: "n", grid: { show: false }, stroke: css("waiting") })],
      series: [seconds, curve("at the back end", "headgate", "", { fill: css("headgate") + "22" }), curve("waiting", "waiting", "", { scale: "n" })],
    }, [capacity, death(gated)]);
    if (data.flooded) draw("others", at, apps.map((s) => byTime(s.others)), within(apps), []);
    if (data.shared) draw("shares", at, apps.map((s) => byTime(s.shares)), {
      scales: { x: { time: false, range: () => [0, 100] }, y: { range: () => [0, 104] } },
      axes: [axis({ values: (u, vs) => vs.map((v) => v + " %") }), axis({ size: 56, values: (u, vs) => vs.map((v) => v + " %") })],
      series: [{ label: "of the tenants", value: (u, v) => (v == null ? "–" : v.toFixed(0) + " %") }, ...apps.map((s) => curve(s.name, s.name, " %"))],
    }, []);
    if (!data.flooded && !data.shared) draw("chat", at, apps.map((s) => byTime(s.chat)), {
      scales: { x: time, y: { range: upTo(1) } },
      axes: [axis(), axis({ size: 56, values: (u, vs) => vs.map((v) => v + " s") })],
      series: [seconds, ...apps.map((s) => curve(s.name, s.name, " s", { points: { show: true, size: 6 } }))],
    }, deaths);
    latency(apps, at);
  };

  const latency = (apps, at) => draw("latency", at, apps.map((s) => byTime(s.latency)), within(apps), []);
  // Percent that were answered within a time: as many as at the last answer, until the next.
  const within = (apps) => ({
    scales: { x: { time: false, distr: 3 }, y: { range: () => [0, 104] } },
    axes: [axis({ values: (u, vs) => vs.map((v) => (v == null ? "" : v < 1 ? +(v * 1000).toFixed(1) + " ms" : v + " s")) }), axis({ size: 56, values: (u, vs) => vs.map((v) => v + " %") })],
    series: [{ label: "within", value: (u, v) => (v == null ? "–" : v < 1 ? (v * 1000).toFixed(0) + " ms" : v.toFixed(2) + " s") }, ...apps.map((s) => curve(s.name, s.name, " %", { paths: uPlot.paths.stepped({ align: 1 }) }))],
  });

  const render = () => {
    for (const c of charts.splice(0)) {
      c.watch.disconnect();
      c.u.destroy();
    }
    storms.forEach(storm);
  };
  render();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
})();
