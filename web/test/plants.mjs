// What a script that got into the page could try, to send something out; each runs in the page, with an address.

/** Attempts that the second policy must stop; the first five are those that the project names. */
export const STOPPED = {
  fetch: (to) => fetch(to, { mode: "no-cors" }),
  image: (to) => void (new Image().src = to),
  form: (to) => {
    const form = Object.assign(document.createElement("form"), { action: to, method: "POST", target: "elsewhere" });
    document.body.append(form);
    form.submit();
  },
  WebSocket: (to) => void new WebSocket(to.replace("http", "ws")),
  beacon: (to) => void navigator.sendBeacon(to, "42"),
  XMLHttpRequest: (to) => {
    const request = new XMLHttpRequest();
    request.open("GET", to);
    request.send();
  },
  "fetch that outlives the page": (to) => fetch(to, { mode: "no-cors", keepalive: true }),
  EventSource: (to) => void new EventSource(to),
  script: (to) => void document.body.append(Object.assign(document.createElement("script"), { src: to })),
  "module script": (to) => void document.body.append(Object.assign(document.createElement("script"), { type: "module", src: to })),
  "import()": (to) => import(to),
  "style sheet": (to) => void document.body.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href: to })),
  "image of a style": (to) => void (document.body.style.backgroundImage = `url(${to})`),
  font: (to) => new FontFace("planted", `url(${to})`).load(),
  frame: (to) => void document.body.append(Object.assign(document.createElement("iframe"), { src: to })),
  object: (to) => void document.body.append(Object.assign(document.createElement("object"), { data: to })),
  embed: (to) => void document.body.append(Object.assign(document.createElement("embed"), { src: to })),
  video: (to) => void document.body.append(Object.assign(document.createElement("video"), { src: to, autoplay: true })),
  audio: (to) => void new Audio(to).load(),
  worker: (to) => void new Worker(to),
  "shared worker": (to) => void new SharedWorker(to),
  "service worker": (to) => navigator.serviceWorker.register(to),
  prefetch: (to) => void document.head.append(Object.assign(document.createElement("link"), { rel: "prefetch", href: to })),
  preload: (to) => void document.head.append(Object.assign(document.createElement("link"), { rel: "preload", as: "image", href: to })),
  modulepreload: (to) => void document.head.append(Object.assign(document.createElement("link"), { rel: "modulepreload", href: to })),
  manifest: (to) => void document.head.append(Object.assign(document.createElement("link"), { rel: "manifest", href: to })),
  icon: (to) => void document.head.append(Object.assign(document.createElement("link"), { rel: "icon", href: to })),
  "speculation rules": (to) => {
    const script = Object.assign(document.createElement("script"), { type: "speculationrules" });
    script.textContent = JSON.stringify({ prefetch: [{ source: "list", urls: [to], eagerness: "immediate" }] });
    document.head.append(script);
  },
  "ping of a link": (to) => {
    const link = Object.assign(document.createElement("a"), { href: "#nowhere", ping: to });
    document.body.append(link);
    link.click();
  },
};

/** What no policy of a page stops (docs/guides/device-security.md). */
export const NOT_STOPPED = {
  "the page goes elsewhere": (to) => void (location.href = to),
  "a link is followed": (to) => Object.assign(document.createElement("a"), { href: to }).click(),
  "a window is opened": (to) => void window.open(to),
  "a connection is opened ahead": (to) => void document.head.append(Object.assign(document.createElement("link"), { rel: "preconnect", href: to })),
  "the service worker is looked up": async () => (await navigator.serviceWorker.getRegistration()).update(),
  "a cookie goes with the next visit": (to) => {
    document.cookie = "planted=42";
    location.reload();
  },
};
