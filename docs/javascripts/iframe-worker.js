// Browsers start no worker from a file: there, the search of the site runs in a hidden frame instead.
if (window.location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      const script = new URL(url, document.baseURI);
      const load = (address) => new Promise((resolve) => {
        const node = inside.document.createElement("script");
        Object.assign(node, { src: new URL(address, script), async: false, onload: resolve, onerror: resolve });
        inside.document.body.append(node);
      });
      inside.importScripts = (...addresses) => Promise.all(addresses.map(load));
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const loaded = load(script);
      this.postMessage = (data) => loaded.then(() => inside.dispatchEvent(new MessageEvent("message", { data })));
      this.terminate = () => frame.remove();
    }
  };
}
