// The view in the address of the page, after the #: whoever opens the address sees the same.

const KEYS = ["episode", "step", "reward", "theme", "filter", "cell", "far", "sort", "search", "zoom", "with"];

const readAddress = () => {
  const given = new URLSearchParams(window.location.hash.slice(1));
  return Object.fromEntries(KEYS.filter((key) => given.has(key)).map((key) => [key, given.get(key)]));
};

class Address {
  constructor(state, onChange) {
    this.state = state;
    this.timer = null;
    window.addEventListener("hashchange", () => window.location.hash.slice(1) !== this.written && onChange(readAddress()));
  }

  // Browsers allow few changes in a second, so playing writes seldom.
  save() {
    if (this.timer !== null) return;
    this.timer = window.setTimeout(() => {
      this.timer = null;
      const entries = Object.entries(this.state()).filter(([, value]) => value !== null && value !== undefined && value !== "");
      this.written = new URLSearchParams(entries).toString();
      try {
        window.history.replaceState(null, "", `#${this.written}`);
      } catch { /* inside a notebook the page has no address of its own */ }
    }, 250);
  }
}
