// The view as SVG and PNG, and the episode as GIF. All is made here: nothing is fetched and nothing is sent.

const PAINT = ["fill", "stroke", "stroke-width", "stroke-linecap", "opacity", "font-size"];
const MOST_FRAMES = 300;
const WIDEST_GIF = 900;
const GAP = 14;

// A drawing with the page's styles written into it, as it looks outside of the page.
function inlined(drawing) {
  const copy = drawing.cloneNode(true);
  const copies = [...copy.querySelectorAll("*")];
  [...drawing.querySelectorAll("*")].forEach((node, i) => {
    const style = window.getComputedStyle(node);
    for (const { name } of [...copies[i].attributes]) if (/^(class|role|tabindex|aria-|data-)/.test(name)) copies[i].removeAttribute(name);
    if (node.matches("title, g")) return;
    if (node.matches(".hit") && style.fill === "rgba(0, 0, 0, 0)") copies[i].remove();
    for (const name of PAINT) copies[i].setAttribute(name, style.getPropertyValue(name));
  });
  return copy;
}

const pictures = () => ["stage", "map", "other-stage"].map(byId).filter((canvas) => canvas && canvas.width && canvas.offsetParent);

// Words that a picture must not be without: what it shows, how far it can be trusted, and who earned the reward.
function captions(explorer) {
  const { data, entry, count } = explorer;
  const earned = [...byId("earned").querySelectorAll("p, ol button")].map((node) => node.innerText.replace(/\s+/g, " ").trim() + (node.matches("button") ? "," : ""));
  return [
    { text: data.title, size: 18, weight: 650 },
    { text: `Episode ${entry.episode} · step ${count} of ${entry.steps}`, size: 14 },
    { text: `model: ${data.model} · ${standing(data).slice(0, 2).join(" · ")}`, size: 12, colour: "--soft" },
    ...(data.doubt ? [{ text: data.doubt, size: 13, weight: 650, colour: "--loss" }] : []),
    { text: earned.filter(Boolean).join("  ").replaceAll(" %", "\u00a0%"), size: 13, last: true },
  ];
}

function viewAsSvg(explorer) {
  const timeline = inlined(explorer.timeline.svg);
  const width = Math.max(480, explorer.timeline.width) + 2 * GAP;
  const parts = [];
  let top = GAP;
  const say = ({ text, size, weight = 400, colour: name = "--ink" }) => {
    const letters = Math.floor((width - 2 * GAP) / (size * 0.54)); // lines are broken between words
    const lines = text.split(" ").reduce((found, word) => {
      if (`${found.at(-1)} ${word}`.length > letters) found.push(word);
      else found[found.length - 1] += ` ${word}`;
      return found;
    }, [""]);
    for (const line of lines) {
      top += size * 1.35;
      parts.push(svg("text", { x: GAP, y: top - size * 0.35, "font-size": size, "font-weight": weight, fill: colour(name) }, line.trim()));
    }
  };
  const words = captions(explorer);
  words.filter((each) => !each.last).forEach(say);
  top += GAP / 2;
  let left = GAP;
  for (const canvas of pictures()) {
    const [w, h] = [canvas.clientWidth, canvas.clientHeight];
    parts.push(svg("image", { x: left, y: top, width: w, height: h, href: canvas.toDataURL("image/png") }));
    left += w + GAP;
  }
  if (left > GAP) top += Math.max(...pictures().map((canvas) => canvas.clientHeight)) + GAP;
  timeline.setAttribute("x", GAP);
  timeline.setAttribute("y", top);
  timeline.setAttribute("width", explorer.timeline.width);
  parts.push(timeline);
  top += explorer.timeline.top + GAP / 2;
  words.filter((each) => each.last).forEach(say);
  const [w, h] = [Math.ceil(Math.max(width, left)), Math.ceil(top + GAP)];
  const root = svg("svg", { width: w, height: h, viewBox: `0 0 ${w} ${h}`, "font-family": "system-ui, sans-serif" },
    svg("title", {}, words.map((each) => each.text).join("\n")), svg("rect", { width: w, height: h, fill: colour("--ground") }), parts);
  return { text: new XMLSerializer().serializeToString(root), width: w, height: h };
}

async function asImage(text) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  return image;
}

async function viewAsPng(explorer) {
  const { text, width, height } = viewAsSvg(explorer);
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [2 * width, 2 * height];
  canvas.getContext("2d").drawImage(await asImage(text), 0, 0, 2 * width, 2 * height);
  return new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
}

// Every step of the episode, or evenly spread ones of a long episode: the pictures over the timeline with its cursor.
async function episodeAsGif(explorer, onProgress) {
  const { entry, timeline, count: before } = explorer;
  const every = Math.ceil((entry.steps + 1) / MOST_FRAMES);
  const counts = Array.from({ length: Math.floor(entry.steps / every) + 1 }, (_, i) => i * every);
  if (counts.at(-1) !== entry.steps) counts.push(entry.steps);
  const still = inlined(timeline.svg);
  still.lastChild.remove(); // the cursor
  for (const [name, value] of Object.entries({ width: timeline.width, height: timeline.top, "font-family": "system-ui, sans-serif" })) still.setAttribute(name, value);
  const strips = await asImage(new XMLSerializer().serializeToString(still));
  const shown = pictures();
  const scale = Math.min(1, WIDEST_GIF / (timeline.width + 2 * GAP));
  const high = Math.max(0, ...shown.map((canvas) => canvas.clientHeight + GAP));
  const [width, height] = [timeline.width + 2 * GAP, 48 + high + timeline.top + GAP].map((side) => Math.round(side * scale));
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width, height });
  const c = canvas.getContext("2d", { willReadFrequently: true });
  const frame = (count) => {
    explorer.count = count;
    explorer.picture();
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.fillStyle = colour("--card");
    c.fillRect(0, 0, width / scale, height / scale);
    c.fillStyle = colour("--ink");
    c.font = "600 15px system-ui, sans-serif";
    const reward = entry.rewardAt.get(count - 1);
    c.fillText(`Episode ${entry.episode} · step ${count} of ${entry.steps}${reward ? ` · reward ${brief(reward)}` : ""}`, GAP, 22);
    c.fillStyle = colour(explorer.data.doubt ? "--loss" : "--soft");
    c.font = "12px system-ui, sans-serif";
    c.fillText([explorer.data.doubt || explorer.data.verdict, every > 1 ? `every ${every} steps` : ""].filter(Boolean).join(" · "), GAP, 40);
    shown.reduce((left, each) => {
      c.drawImage(each, left, 48, each.clientWidth, each.clientHeight);
      return left + each.clientWidth + GAP;
    }, GAP);
    c.drawImage(strips, GAP, 48 + high, timeline.width, timeline.top);
    c.fillStyle = colour("--cursor");
    if (count && (count < timeline.from || count > timeline.to)) return c.getImageData(0, 0, width, height).data;
    c.fillRect(GAP + (count ? timeline.x(count - 1) : timeline.gutter) - 0.75, 48 + high + 4, 1.5, timeline.top - 20);
    return c.getImageData(0, 0, width, height).data;
  };
  const samples = [0, 0.25, 0.5, 0.75, 1].map((share) => frame(counts[Math.floor(share * (counts.length - 1))]));
  const gif = new Gif(width, height, samples);
  const pause = 1000 / Number(byId("speed").value);
  for (const [i, count] of counts.entries()) {
    gif.add(frame(count), i + 1 < counts.length ? Math.max(40, pause) : 1500);
    if (i % 4) continue;
    onProgress(i / counts.length);
    await new Promise((resolve) => { window.setTimeout(resolve, 0); });
    if (explorer.entry !== entry) throw new Error("another episode was chosen");
  }
  explorer.goTo(before);
  return gif.blob();
}

function save(blob, name) {
  const address = URL.createObjectURL(blob);
  el("a", { href: address, download: name }).click();
  window.setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

function exportButtons(explorer) {
  const name = (ending) => `episode-${explorer.entry.episode}-step-${explorer.count}.${ending}`;
  const on = (id, make) => byId(id).addEventListener("click", async () => {
    explorer.play(false);
    byId(id).disabled = true;
    try {
      save(await make(), name(id.replace("save-", "")));
      byId("saved").textContent = "";
    } catch (error) {
      byId("saved").textContent = `Not saved: ${error.message}`;
    }
    byId(id).disabled = false;
  });
  on("save-svg", () => new Blob([viewAsSvg(explorer).text], { type: "image/svg+xml" }));
  on("save-png", () => viewAsPng(explorer));
  on("save-gif", () => episodeAsGif(explorer, (share) => { byId("saved").textContent = `GIF: ${percent(share)}`; }));
}
