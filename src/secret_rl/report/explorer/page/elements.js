"use strict";
// Small helpers. Texts of the data reach the page as text nodes and attribute values only, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const percent = (share) => (share >= 0.0995 ? (100 * share).toFixed(0) : (100 * share).toFixed(1)) + " %";
const signed = (number) => (number > 0 ? "+" : number < 0 ? "−" : "") + Math.abs(number);
const brief = (number) => signed(Number(number.toPrecision(3)));
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
const trajectories = (count) => plural(count, "trajectory").replace("trajectorys", "trajectories");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Shapes repeat what colours say, for readers who cannot tell the colours apart.
const SHAPES = {
  up: (x, y, r) => `M${x - r} ${y + r * 0.8}L${x + r} ${y + r * 0.8}L${x} ${y - r}Z`,
  down: (x, y, r) => `M${x - r} ${y - r * 0.8}L${x + r} ${y - r * 0.8}L${x} ${y + r}Z`,
  cross: (x, y, r) => `M${x - r} ${y - r}L${x + r} ${y + r}M${x - r} ${y + r}L${x + r} ${y - r}`,
  diamond: (x, y, r) => `M${x} ${y - r}L${x + r} ${y}L${x} ${y + r}L${x - r} ${y}Z`,
};
const shape = (kind, x, y, r, more = "") => svg("path", { class: `${kind} ${more}`, d: SHAPES[kind](x, y, r) });

async function readData() {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("this browser is too old to unpack the data; one from 2023 or later can");
  }
  const packed = Uint8Array.from(atob(byId("data").textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const ENDS = { terminated: "ended", truncated: "cut short", open: "goes on" };

// Lookups of an entry, computed once.
function prepare(entry, signs) {
  entry.rewardAt = new Map(entry.rewards);
  entry.predictedSigns = entry.predicted.map((number) => signs[number]);
  entry.chanceOf = (sign) => entry.predicted.map((_, t) =>
    entry.chances.reduce((sum, row, number) => sum + (signs[number] === sign ? row[t] : 0), 0) / 255);
  entry.wrongAt = new Set(entry.wrong);
  entry.rowAt = new Map(entry.attention.map((row) => [row.step, row]));
  for (const row of [...entry.attention, ...entry.beside.flat()]) {
    if (row) row.shares = row.weights.map((weight) => weight / 10000);
  }
  entry.truthAt = new Map();
  for (const [name, steps] of Object.entries(entry.truth)) {
    for (const step of steps) entry.truthAt.set(step, [...(entry.truthAt.get(step) || []), name]);
  }
  entry.cells = new Map(); // the first step of each actual class, times 1000, and predicted one
  (entry.actual || []).forEach((actual, t) => {
    const cell = 1000 * actual + entry.predicted[t];
    if (!entry.cells.has(cell)) entry.cells.set(cell, t);
  });
  const events = Object.keys(entry.truth).filter((name) => entry.truth[name].length);
  const kinds = entry.attention.map((row) => row.kind);
  entry.words = [...new Set([...events, ...kinds, ENDS[entry.ended], entry.successful ? "successful" : ""])].join(" ").toLowerCase();
  return entry;
}

// Attention of each step: of one reward, or of all rows of a trajectory.
function shares(entry, row) {
  const total = new Map();
  for (const one of row ? [row] : entry.attention.filter((each) => each.kind === "right")) {
    one.to.forEach((step, i) => total.set(step, (total.get(step) || 0) + one.shares[i]));
  }
  return total;
}
