// Browsers start no Worker from file://. The search of the theme asks for one, so there it gets
// a hidden frame that loads the same script and answers in the same way.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      // Scripts load one after the other, as importScripts of a worker has it.
      inside.importScripts = (...urls) =>
        urls.reduce((before, each) => before.then(() => load(inside, each)), Promise.resolve());
      load(inside, url).then(() => {
        this.ready = true;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      });
    }

    postMessage(data) {
      if (!this.ready) {
        this.waiting.push(data);
        return;
      }
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };

  const load = (inside, url) =>
    new Promise((done, failed) => {
      const script = inside.document.createElement("script");
      script.src = url;
      script.onload = done;
      script.onerror = failed;
      inside.document.body.appendChild(script);
    });
}
