// Plots as inline SVG: y starts at 0, missing data is a gap, the unfinished last interval is paler.

import { button, h, svg } from "./dom.js";
import * as f from "./format.js";

const HEIGHT = 190;
const LEFT = 56;
const RIGHT = 34;
const TOP = 10;
const BOTTOM = 24;

function ceiling(value, seconds) {
  if (seconds) {
    const steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 4 * 3600, 86400, 7 * 86400];
    const step = steps.find((one) => one * 4 >= value) ?? 7 * 86400;
    return [step * Math.max(1, Math.ceil(value / step)), step];
  }
  const raw = Math.max(value, 1) / 4;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = Math.max(1, [1, 2, 5, 10].map((one) => one * power).find((one) => one >= raw));
  return [step * Math.max(1, Math.ceil(value / step)), step];
}

function timeTicks(from, to, most) {
  const span = (to - from) / 1000;
  const widths = [600, 900, 1800, 3600, 7200, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400];
  const width = (widths.find((one) => span / one <= most) ?? 7 * 86400) * 1000;
  const zero = new Date(from);
  zero.setHours(0, 0, 0, 0);
  const ticks = [];
  for (let at = zero.getTime(); at <= to; at += width) if (at >= from) ticks.push(at);
  return [ticks, width >= 86400_000];
}

// `series`: [{ label, class, of: (point) => number | null }]. `stacked`: as bars on each other, otherwise lines.
export function plot({ title, points, step, series, stacked, seconds, summary }) {
  const box = h("div", { class: "plot" });
  const tip = h("div", { class: "plot-tip", hidden: true });
  const table = h("div", { class: "plot-table", hidden: true });
  const toggle = button("Show as table", { kind: "small bare", onclick: () => {
    table.hidden = !table.hidden;
    drawing.hidden = !table.hidden;
    toggle.firstChild.textContent = table.hidden ? "Show as table" : "Show as plot";
    if (!table.hidden) fillTable();
  } });
  const drawing = h("div", { class: "drawing-area", tabindex: 0, role: "img" });
  let data = { points, step };
  let at = null;

  const unit = (value) => (seconds ? f.duration(value) : f.count(value));

  function fillTable() {
    const rows = data.points.filter((point) => series.some(({ of }) => of(point)));
    table.replaceChildren(h("table", null, h("thead", null, h("tr", null, h("th", { scope: "col" }, "From"), series.map(({ label }) => h("th", { scope: "col", class: "number" }, label)))),
      h("tbody", null, rows.slice(-100).map((point) => h("tr", null, h("td", null, `${f.day(point.at)} ${f.minute(point.at)}`), series.map(({ of }) => h("td", { class: "number" }, of(point) == null ? f.NONE : unit(of(point)))))))));
  }

  function draw() {
    const width = Math.max(240, drawing.clientWidth || 560);
    const all = data.points;
    if (!all.length) return;
    const from = new Date(all[0].at).getTime();
    const to = from + all.length * data.step * 1000;
    const inner = width - LEFT - RIGHT;
    const tall = HEIGHT - TOP - BOTTOM;
    const x = (time) => LEFT + (inner * (time - from)) / (to - from);
    const highest = Math.max(0, ...all.map((point) => (stacked ? series.reduce((sum, { of }) => sum + (of(point) ?? 0), 0) : Math.max(...series.map(({ of }) => of(point) ?? 0)))));
    const [top, grid] = ceiling(highest, seconds);
    const y = (value) => TOP + tall * (1 - value / top);
    const parts = [];
    for (let value = 0; value <= top * 1.0001; value += grid) {
      parts.push(svg("line", { class: "grid", x1: LEFT, x2: LEFT + inner, y1: y(value), y2: y(value) }),
        svg("text", { class: "axis", x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, value === 0 ? "0" : seconds ? f.duration(value).replace(/ 00\u202fs$/, "").replace(/ 00\u202fm$/, "") : f.axis(value)));
    }
    const [ticks, days] = timeTicks(from, to, Math.floor(inner / 80));
    for (const tick of ticks) {
      if (x(tick) > LEFT + 12 && x(tick) < LEFT + inner + 2) parts.push(svg("text", { class: "axis", x: x(tick), y: HEIGHT - 6, "text-anchor": "middle" }, days ? f.day(tick) : f.minute(tick)));
    }
    const slot = inner / all.length;
    if (stacked) {
      all.forEach((point, index) => {
        let base = 0;
        for (const { of, class: kind } of series) {
          const value = of(point) ?? 0;
          if (!value) continue;
          const gap = slot > 4 ? 1 : 0.3;
          const heightOf = Math.max(1.5, y(base) - y(base + value));
          parts.push(svg("rect", { class: `${kind}${index === all.length - 1 ? " unfinished" : ""}`, x: LEFT + index * slot + gap / 2, width: Math.max(0.6, slot - gap), y: y(base) - heightOf, height: heightOf, rx: slot > 5 ? 1 : 0 }));
          base += value;
        }
      });
    } else {
      const ends = [];
      for (const { of, class: kind, label } of series) {
        let path = "";
        let gap = true;
        let last = null;
        const alone = [];
        all.forEach((point, index) => {
          const value = of(point);
          if (value == null) { gap = true; return; }
          const px = LEFT + (index + 0.5) * slot;
          path += `${gap ? "M" : "L"}${px.toFixed(1)} ${y(value).toFixed(1)}`;
          // A point between two gaps has no line.
          if (gap && (index + 1 === all.length || of(all[index + 1]) == null)) alone.push(svg("circle", { class: `dot-${kind}`, cx: px, cy: y(value), r: 2.5 }));
          gap = false;
          last = [px, y(value)];
        });
        parts.push(svg("path", { class: `line ${kind}`, d: path, fill: "none" }), ...alone);
        if (last) ends.push([last, label, kind]);
      }
      ends.sort((a, b) => a[0][1] - b[0][1]);
      let lowest = -Infinity;
      for (const [[, py], label, kind] of ends) {
        lowest = Math.max(py + 4, lowest + 13);
        parts.push(svg("text", { class: `end ${kind}`, x: LEFT + inner + 6, y: lowest }, label));
      }
    }
    if (at != null && all[at]) parts.push(svg("line", { class: "cross", x1: LEFT + (at + 0.5) * slot, x2: LEFT + (at + 0.5) * slot, y1: TOP, y2: TOP + tall }));
    drawing.replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, "aria-hidden": "true" },
      svg("defs", null, svg("pattern", { id: "hatch-error", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        svg("rect", { width: 5, height: 5, class: "hatch-ground" }), svg("rect", { width: 2, height: 5, class: "hatch-line" }))), parts), tip);
    drawing.setAttribute("aria-label", `${title}. ${summary(data.points)}`);
    tip.hidden = at == null || !all[at];
    if (!tip.hidden) {
      const point = all[at];
      tip.replaceChildren(h("p", { class: "faint" }, `${f.minute(point.at)} – ${f.minute(new Date(point.at).getTime() + data.step * 1000)}`),
        h("p", null, series.map(({ label, of }) => [h("b", null, `${label} `), of(point) == null ? f.NONE : unit(of(point)), "  "])));
      tip.style.left = `${Math.min(width - tip.offsetWidth - 4, Math.max(LEFT, LEFT + (at + 0.5) * slot + 10))}px`;
    }
  }
  const move = (index) => { at = index == null ? null : Math.max(0, Math.min(data.points.length - 1, index)); draw(); };
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const index = Math.floor(((event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT)) * data.points.length);
    if (index !== at) move(index);
  });
  drawing.addEventListener("pointerleave", () => move(null));
  drawing.addEventListener("blur", () => move(null));
  drawing.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    event.preventDefault();
    move((at ?? data.points.length) + (event.key === "ArrowLeft" ? -1 : 1));
  });
  new ResizeObserver(() => draw()).observe(drawing);
  box.append(drawing, table, toggle);
  return Object.assign(box, { update(nextPoints, nextStep) { data = { points: nextPoints, step: nextStep }; draw(); if (!table.hidden) fillTable(); } });
}

// A small line without axes.
export function sparkline(values, status) {
  const width = 74;
  const height = 18;
  const known = values.filter((value) => value != null);
  const top = Math.max(...known, 0);
  if (known.length < 4 || top === 0) return svg("svg", { class: "spark", width, height, "aria-hidden": "true" });
  let gap = true;
  const path = values.map((value, index) => {
    if (value == null) { gap = true; return ""; }
    const command = gap ? "M" : "L";
    gap = false;
    return `${command}${((index * width) / (values.length - 1)).toFixed(1)} ${(1 + (height - 2) * (1 - value / top)).toFixed(1)}`;
  }).join("");
  return svg("svg", { class: `spark s-${status}`, width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, svg("path", { d: path, fill: "none", stroke: "currentColor", "stroke-width": 1.4 }));
}
