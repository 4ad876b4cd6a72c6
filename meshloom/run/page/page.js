
"use strict";
(() => {
  // Curves that answer: hover or arrow keys read values, dragging zooms, boxes choose curves and scales. The page shows
  // the same curves without this. Sizes are those of curves.py.
  const W = 640, H = 220, L = 70, R = 12, T = 10, B = 26, LETTER = 7, NS = "http://www.w3.org/2000/svg";
  const curves = JSON.parse(document.getElementById("curves").textContent);
  if (!curves.length) return;
  const ends = curves.flatMap((c) => (c.x.length ? [c.x[0], c.x[c.x.length - 1]] : []));
  const full = [Math.min(...ends), Math.max(...ends)];
  let view = full.slice();
  let cursor = null; // an iteration

  const charts = curves.map((curve, k) => ({
    curve, log: curve.log,
    figure: document.querySelector(`figure[data-curve="${k}"]`),
  })).filter((c) => c.figure && c.curve.x.length);
  for (const chart of charts) {
    chart.svg = chart.figure.querySelector("svg");
    chart.value = chart.figure.querySelector(".value");
    chart.svg.setAttribute("tabindex", "0");
  }

  function made(tag, attributes, text) {
    const one = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value);
    if (text !== undefined) one.textContent = text;
    return one;
  }

  // As in numbers.py: at most so many digits that count, in scientific form where a plain one has many zeros.
  function number(value, digits = 6) {
    const [mantissa, power] = value.toExponential(digits - 1).split("e"), exponent = Number(power);
    const bare = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
    if (value === 0) return "0";
    if (exponent >= -4 && exponent < digits) return bare(value.toFixed(digits - 1 - exponent));
    return `${bare(mantissa)}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }

  function tickLabels(values) {
    const apart = Math.min(...values.slice(1).map((b, k) => b - values[k]));
    for (let digits = 3; digits < 16; digits++) {
      const found = values.map((v) => number(v, digits));
      if (values.length > 1 ? found.every((text, k) => Math.abs(Number(text) - values[k]) <= 0.01 * apart) : Number(found[0]) === values[0]) return found;
    }
    return values.map((v) => number(v, values.length > 1 ? 16 : 6));
  }

  function ticks(low, high) {
    let step = 10 ** Math.floor(Math.log10((high - low) / 6));
    for (const factor of [1, 2, 5, 10]) if ((high - low) / (step * factor) <= 6) { step *= factor; break; }
    const first = Math.ceil(low / step), found = [];
    for (let k = 0; k < 12 && (first + k) * step <= high; k++) found.push((first + k) * step);
    return found;
  }

  function logTicks(low, high) {
    if (high - low > 3) return ticks(low, high).filter((v) => Math.abs(v - Math.round(v)) < 1e-9);
    const found = [];
    for (let k = Math.floor(low); k <= high; k++) for (const one of [1, 2, 5]) found.push(k + Math.log10(one));
    const inside = found.filter((v) => v >= low && v <= high);
    return inside.length > 1 ? inside : ticks(low, high);
  }

  function range(values, margin) {
    const low = Math.min(...values), high = Math.max(...values);
    if (!(high > low)) { const around = Math.abs(low) * 0.05 || 1; return [low - around, high + around]; }
    return [low - margin * (high - low), high + margin * (high - low)];
  }

  const place = (value, [low, high], start, end) => start + ((value - low) / (high - low)) * (end - start);

  function draw(chart) {
    const { x, y } = chart.curve, scaled = (v) => (v === null || (chart.log && v <= 0) ? null : chart.log ? Math.log10(v) : v);
    const wanted = view[1] > view[0] ? view : range(view, 0);
    const seen = [];
    for (let k = 0; k < x.length; k++) if (x[k] >= wanted[0] && x[k] <= wanted[1]) { const v = scaled(y[k]); if (v !== null) seen.push(v); }
    chart.svg.replaceChildren();
    if (!seen.length) {
      chart.svg.append(made("text", { x: W / 2, y: H / 2, "text-anchor": "middle" }, "no finite value here"));
      return;
    }
    const yr = range(seen, 0.04);
    chart.xr = wanted; chart.yr = yr; chart.scaled = scaled;
    const xs = ticks(...wanted), xLabels = tickLabels(xs);
    for (const [k, v] of xs.entries()) {
      const p = place(v, wanted, L, W - R), inside = Math.min(p, W - 0.5 * LETTER * xLabels[k].length);
      chart.svg.append(made("path", { class: "grid", d: `M${p} ${T}V${H - B}` }), made("text", { x: inside, y: H - 8, "text-anchor": "middle" }, xLabels[k]));
    }
    const ys = (chart.log ? logTicks : ticks)(...yr), yLabels = tickLabels(ys.map((v) => (chart.log ? 10 ** v : v)));
    for (const [k, v] of ys.entries()) {
      const p = place(v, yr, H - B, T), tight = LETTER * yLabels[k].length > L - 8 ? { textLength: L - 8, lengthAdjust: "spacingAndGlyphs" } : {};
      chart.svg.append(made("path", { class: "grid", d: `M${L} ${p}H${W - R}` }), made("text", { x: L - 6, y: p + 4, "text-anchor": "end", ...tight }, yLabels[k]));
    }
    let d = "", pen = "M";
    for (let k = 0; k < x.length; k++) {
      const v = scaled(y[k]);
      const inside = x[k] >= wanted[0] && x[k] <= wanted[1];
      if (v === null || !inside) { pen = "M"; continue; }
      d += `${pen}${place(x[k], wanted, L, W - R).toFixed(1)} ${place(v, yr, H - B, T).toFixed(1)}`;
      pen = "L";
    }
    chart.svg.append(made("path", { class: "line", d }));
    chart.cursor = made("path", { class: "cursor", d: "" });
    chart.dot = made("circle", { class: "dot", r: 0, cx: 0, cy: 0 });
    chart.svg.append(chart.cursor, chart.dot);
    show(chart);
  }

  function nearest(x, wanted) {
    let low = 0, high = x.length - 1;
    while (high - low > 1) { const mid = (low + high) >> 1; if (x[mid] < wanted) low = mid; else high = mid; }
    return wanted - x[low] <= x[high] - wanted ? low : high;
  }

  function show(chart) {
    const { x, y } = chart.curve, k = cursor === null ? x.length - 1 : nearest(x, cursor);
    chart.value.textContent = `${y[k] === null ? "not finite" : number(y[k])} after iteration ${x[k]}`;
    if (!chart.cursor) return;
    const v = chart.scaled(y[k]), inside = x[k] >= chart.xr[0] && x[k] <= chart.xr[1];
    if (cursor === null || v === null || !inside) { chart.cursor.setAttribute("d", ""); chart.dot.setAttribute("r", 0); return; }
    const p = place(x[k], chart.xr, L, W - R);
    chart.cursor.setAttribute("d", `M${p} ${T}V${H - B}`);
    chart.dot.setAttribute("cx", p); chart.dot.setAttribute("cy", place(v, chart.yr, H - B, T)); chart.dot.setAttribute("r", 4);
  }

  const all = (what) => charts.filter((c) => !c.figure.hidden).forEach(what);
  function under(chart, event) {
    const box = chart.svg.getBoundingClientRect();
    const across = Math.min(W - R, Math.max(L, ((event.clientX - box.left) / box.width) * W));
    return view[0] + ((across - L) / (W - R - L)) * (view[1] - view[0]);
  }

  for (const chart of charts) {
    let from = null, area = null;
    chart.svg.addEventListener("pointermove", (event) => {
      cursor = under(chart, event);
      if (from !== null && area) {
        const [a, b] = [from, cursor].sort((p, q) => p - q).map((v) => place(v, view, L, W - R));
        area.setAttribute("x", a); area.setAttribute("width", b - a);
      }
      all(show);
    });
    chart.svg.addEventListener("pointerleave", () => { if (from === null) { cursor = null; all(show); } });
    chart.svg.addEventListener("pointerdown", (event) => {
      from = under(chart, event);
      area = made("rect", { class: "chosen", y: T, height: H - B - T, x: 0, width: 0 });
      chart.svg.append(area);
      chart.svg.setPointerCapture(event.pointerId);
    });
    chart.svg.addEventListener("pointerup", (event) => {
      if (from === null) return;
      const to = under(chart, event), [a, b] = [from, to].sort((p, q) => p - q);
      from = null;
      if (area) area.remove();
      if (b - a > 0.02 * (view[1] - view[0])) { view = [a, b]; all(draw); }
    });
    chart.svg.addEventListener("dblclick", () => { view = full.slice(); all(draw); });
    chart.svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") { view = full.slice(); cursor = null; all(draw); }
      if (!step) return;
      const { x } = chart.curve, k = cursor === null ? x.length - 1 : nearest(x, cursor);
      cursor = x[Math.min(x.length - 1, Math.max(0, k + step))];
      event.preventDefault();
      all(show);
    });
  }

  function box(text, checked, act) {
    const label = document.createElement("label"), input = document.createElement("input");
    input.type = "checkbox"; input.checked = checked;
    input.addEventListener("change", () => act(input.checked));
    label.append(input, ` ${text}`);
    return label;
  }
  const controls = document.getElementById("controls");
  const positive = charts.filter((c) => !c.curve.even && c.curve.y.some((v) => v !== null && v > 0));
  const logs = box("logarithmic", positive.length > 0 && positive.every((c) => c.log), (on) => {
    positive.forEach((c) => { c.log = on; });
    all(draw);
  });
  logs.id = "log";
  const back = document.createElement("button");
  back.type = "button"; back.textContent = "whole run";
  back.addEventListener("click", () => { view = full.slice(); all(draw); });
  controls.append(logs, back);
  if (charts.length > 1) {
    for (const chart of charts) {
      controls.append(box(chart.curve.name, true, (on) => { chart.figure.hidden = !on; if (on) draw(chart); }));
    }
  }
  controls.hidden = false;
  all(draw);
})();
