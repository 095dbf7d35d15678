// A GIF encoder: one palette of at most 256 colours for all frames, and of each frame only what changed.

const COLOURS = 256;
const SAME = COLOURS - 1; // stands for the colour that is there already
const bin = (pixels, i) => ((pixels[i] >> 3) << 10) | ((pixels[i + 1] >> 3) << 5) | (pixels[i + 2] >> 3); // 5 bits a channel

// Colours that stand for those of some frames (RGBA bytes each): median cut over bins of similar colours.
function paletteOf(frames) {
  const sums = new Float64Array(4 * 32768); // of red, green and blue, and the count, in each bin
  for (const pixels of frames) {
    for (let i = 0; i < pixels.length; i += 4) {
      const at = 4 * bin(pixels, i);
      for (let channel = 0; channel < 3; channel++) sums[at + channel] += pixels[i + channel];
      sums[at + 3] += 1;
    }
  }
  const used = [];
  for (let number = 0; number < 32768; number++) {
    const count = sums[4 * number + 3];
    if (count) used.push({ number, count, mean: [0, 1, 2].map((channel) => sums[4 * number + channel] / count) });
  }
  const widest = (box) => {
    const reach = [0, 1, 2].map((channel) => {
      const values = box.map((each) => each.mean[channel]);
      return Math.max(...values) - Math.min(...values);
    });
    return [Math.max(...reach), reach.indexOf(Math.max(...reach))];
  };
  const boxes = [{ bins: used, reach: widest(used) }];
  while (boxes.length < SAME) {
    const box = boxes.reduce((best, each) => (each.reach[0] > best.reach[0] ? each : best));
    if (box.bins.length < 2) break;
    const channel = box.reach[1];
    box.bins.sort((a, b) => a.mean[channel] - b.mean[channel]);
    const middle = Math.floor(box.bins.length / 2);
    const parts = [box.bins.slice(0, middle), box.bins.slice(middle)].map((bins) => ({ bins, reach: widest(bins) }));
    boxes.splice(boxes.indexOf(box), 1, ...parts);
  }
  const colours = boxes.map(({ bins }) => {
    const total = bins.reduce((sum, each) => sum + each.count, 0);
    return [0, 1, 2].map((channel) => Math.round(bins.reduce((sum, each) => sum + each.count * each.mean[channel], 0) / total));
  });
  const nearest = new Int16Array(32768).fill(-1);
  boxes.forEach(({ bins }, i) => bins.forEach((each) => { nearest[each.number] = i; }));
  return { colours, nearest };
}

// The number of the palette's colour for each pixel; a colour that no sampled frame had gets the nearest.
function indexed(pixels, { colours, nearest }) {
  const indices = new Uint8Array(pixels.length / 4);
  for (let i = 0; i < indices.length; i++) {
    const number = bin(pixels, 4 * i);
    if (nearest[number] < 0) {
      const distance = (colour) => colour.reduce((sum, value, channel) => sum + (value - pixels[4 * i + channel]) ** 2, 0);
      nearest[number] = colours.reduce((best, colour, j) => (distance(colour) < distance(colours[best]) ? j : best), 0);
    }
    indices[i] = nearest[number];
  }
  return indices;
}

// Lempel, Ziv and Welch: codes of 9 to 12 bits, in blocks of at most 255 bytes.
function compressed(indices) {
  const [clear, end] = [COLOURS, COLOURS + 1];
  const longer = new Int16Array(4096 * COLOURS); // the code of a code and one more colour; 0: none yet
  const bytes = [];
  let [next, width, bits, held] = [end + 1, 9, 0, 0];
  const put = (code) => {
    bits |= code << held;
    held += width;
    for (; held >= 8; held -= 8, bits >>>= 8) bytes.push(bits & 255);
  };
  put(clear);
  let code = indices[0];
  for (let i = 1; i < indices.length; i++) {
    const place = code * COLOURS + indices[i];
    if (longer[place]) {
      code = longer[place];
      continue;
    }
    put(code);
    if (next < 4096) {
      longer[place] = next++;
      if (next - 1 === 1 << width && width < 12) width++;
    } else {
      put(clear);
      longer.fill(0);
      [next, width] = [end + 1, 9];
    }
    code = indices[i];
  }
  put(code);
  put(end);
  if (held > 0) bytes.push(bits & 255);
  const blocks = [8]; // the size of a colour in bits comes first
  for (let i = 0; i < bytes.length; i += 255) {
    const block = bytes.slice(i, i + 255);
    blocks.push(block.length, ...block);
  }
  blocks.push(0);
  return Uint8Array.from(blocks);
}

// Where two frames differ: left, top, width, height; one pixel where they do not.
function difference(before, now, width) {
  let [left, right, top, bottom] = [width, -1, -1, -1];
  for (let i = 0; i < now.length; i++) {
    if (before[i] === now[i]) continue;
    const x = i % width;
    bottom = Math.floor(i / width);
    if (top < 0) top = bottom;
    left = Math.min(left, x);
    right = Math.max(right, x);
  }
  return top < 0 ? [0, 0, 1, 1] : [left, top, right - left + 1, bottom - top + 1];
}

class Gif {
  // All frames are of one size; the palette is made of some of them.
  constructor(width, height, samples) {
    Object.assign(this, { width, height, palette: paletteOf(samples), before: null });
    const table = new Uint8Array(3 * COLOURS);
    this.palette.colours.forEach((colour, i) => table.set(colour, 3 * i));
    this.parts = [new TextEncoder().encode("GIF89a"), Uint8Array.of(...this.word(width), ...this.word(height), 0xf7, 0, 0), table,
      Uint8Array.of(0x21, 0xff, 11), new TextEncoder().encode("NETSCAPE2.0"), Uint8Array.of(3, 1, 0, 0, 0)]; // for ever
  }

  word(number) {
    return [number & 255, number >> 8];
  }

  add(pixels, milliseconds) {
    const now = indexed(pixels, this.palette);
    const [left, top, width, height] = this.before ? difference(this.before, now, this.width) : [0, 0, this.width, this.height];
    const part = new Uint8Array(width * height);
    for (let row = 0; row < height; row++) {
      const start = (top + row) * this.width + left;
      for (let x = 0; x < width; x++) {
        part[row * width + x] = this.before && this.before[start + x] === now[start + x] ? SAME : now[start + x];
      }
    }
    const delay = Math.max(2, Math.round(milliseconds / 10));
    this.parts.push(Uint8Array.of(0x21, 0xf9, 4, 5, ...this.word(delay), SAME, 0),
      Uint8Array.of(0x2c, ...[left, top, width, height].flatMap(this.word), 0), compressed(part));
    this.before = now;
  }

  blob() {
    return new Blob([...this.parts, Uint8Array.of(0x3b)], { type: "image/gif" });
  }
}
